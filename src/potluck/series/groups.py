"""Runs that differ in nothing but their seed are one group; a group is called by what sets it apart."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from potluck.series.played import Played

FREE = ("seed", "name", "engine.", "recipe.", "series.")
"""Settings that do not set groups apart: what random numbers come from, where clients run, what runs are called."""

FIRST = ("method.name", "data.", "fleet.", "task.", "train.")
"""Which settings are named first, if several set groups apart."""

LONGEST_VALUE = 40  # characters of a value in a group's name


@dataclass(frozen=True)
class Group:
    """Runs of one experiment with several seeds."""

    name: str
    differs: Mapping[str, Any]  # all settings in which the groups differ
    runs: tuple[Played, ...]


@dataclass(frozen=True)
class Spread:
    """Several values of one thing."""

    mean: float
    deviation: float | None  # of the sample; None of a single value
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Mean and deviation of those that there are."""
        found = [value for value in values if value is not None]
        return cls(fmean(found), deviation(found) if len(found) > 1 else None, len(found)) if found else None


def deviation(values: Sequence[float]) -> float:
    """The deviation of a sample; nan if not all are finite, such as the loss of a run that diverged."""
    return stdev(values) if all(map(math.isfinite, values)) else math.nan


def grouped(runs: Sequence[Played]) -> list[Group]:
    """Runs by what they were asked, in the order in which they were given."""
    settings = [
        {key: as_text(value) for key, value in run.settings.items() if not key.startswith(FREE)} for run in runs
    ]
    together: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for at, own in enumerate(settings):
        together.setdefault(tuple(sorted(own.items())), []).append(at)
    firsts = [members[0] for members in together.values()]
    keys = differing([settings[at] for at in firsts])
    named = telling([settings[at] for at in firsts], keys)
    cells = [cell_of([runs[at] for at in members]) for members in together.values()]
    told_by_cells = all(cells) and len(set(cells)) == len(cells) > 1
    found = []
    for cell, members in zip(cells, together.values(), strict=True):
        first = runs[members[0]]
        name = cell if told_by_cells else group_name({key: first.settings.get(key) for key in named}, first)
        found.append(Group(name, {key: first.settings.get(key) for key in keys}, tuple(runs[at] for at in members)))
    names = Counter(group.name for group in found)
    return [group if names[group.name] == 1 else with_path(group) for group in found]


def cell_of(runs: Sequence[Played]) -> str:
    """The row and case of a preset that these runs are of, if they are of one."""
    parts = {tuple(run.settings.get(f"series.{axis}") for axis in ("row", "case")) for run in runs}
    return ".".join(str(part) for part in parts.pop() if part is not None) if len(parts) == 1 else ""


def with_path(group: Group) -> Group:
    """A group whose name is another one's too, such as where long values begin alike, with the path of a run."""
    return replace(group, name=f"{group.name} ({group.runs[0].path})")


def as_text(value: Any) -> str:
    """A value that can be compared."""
    return json.dumps(value, sort_keys=True)


def asked(group: Group) -> dict[str, Any]:
    """What the runs of a group were asked, how long they went on, and all of their seeds."""
    rounds = sorted({run.rounds for run in group.runs})
    evaluated = sorted({run.evaluated[-1] + 1 for run in group.runs})
    seeds = sorted({run.seed for run in group.runs}, key=str)
    many = {"rounds": rounds, "evaluated": evaluated, "seed": seeds}
    return {**group.runs[0].settings, **{key: found[0] if len(found) == 1 else found for key, found in many.items()}}


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The settings that are not the same in all of these."""
    return sorted({key for each in settings for key in each if len({one.get(key) for one in settings}) > 1}, key=place)


def telling(settings: Sequence[Mapping[str, str]], keys: Sequence[str]) -> list[str]:
    """A few of these settings that tell all apart: each sets some apart that those before it do not."""
    chosen: list[str] = []
    kinds = 1
    for key in keys:
        told = len({tuple(each.get(name) for name in [*chosen, key]) for each in settings})
        if told > kinds:
            chosen, kinds = [*chosen, key], told
    return chosen


def place(key: str) -> tuple[int, str]:
    """Where a setting stands among those that are named."""
    return next((at for at, start in enumerate(FIRST) if key.startswith(start)), len(FIRST)), key


def group_name(differs: Mapping[str, Any], run: Played) -> str:
    """What a group is called: the values that set it apart, with the settings' names where the values do not tell."""
    lasts = Counter(map(last_of, differs))
    parts = [told(key if lasts[last_of(key)] > 1 else last_of(key), value) for key, value in differs.items()]
    return ", ".join(parts) or str(run.settings.get("name", run.path.name))


def told(key: str, value: Any) -> str:
    """A setting in a group's name.

    >>> told("name", "fedhm"), told("lr", 0.1), told("clip", None)
    ('fedhm', 'lr=0.1', 'no clip')
    """
    if value is None:
        return f"no {key}"
    text = value if isinstance(value, str) else json.dumps(value)
    text = text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
    return text if key == "name" else f"{key}={text}"


def last_of(key: str) -> str:
    """The last part of a dotted key."""
    return key.rpartition(".")[2]
