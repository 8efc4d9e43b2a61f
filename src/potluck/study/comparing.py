"""Whether runs can be compared: what differs between them beside the method, the network and the training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from potluck.study.schema import Table

MATTERS = (
    "rounds",
    "evaluated",
    "seed",
    "data.",
    "fleet.",
    "recipe.classes",
    "recipe.goal",
    "recipe.inputs",
    "recipe.targets",
    "task.calibration_clients",
    "task.scored_clients",
)
"""Settings that decide what is learned from whom, for how long, and how it is scored."""
LONGEST_VALUE = 40  # characters of a value that are shown


def unlike(runs: Mapping[str, Table]) -> list[str]:
    """The settings in which runs differ so that their figures cannot be compared, each with who has which value.

    >>> unlike({"a": {"seed": 0, "train": {"lr": 1}}, "b": {"seed": 1, "train": {"lr": 2}}, "c": {"seed": 0}})
    ['seed: 0 in a and c, 1 in b']
    """
    settings = {name: flat(table) for name, table in runs.items()}
    keys = dict.fromkeys(key for found in settings.values() for key in found if key.startswith(MATTERS))
    told = []
    for key in keys:
        holders: dict[str, list[str]] = {}
        for name, found in settings.items():
            holders.setdefault(shown(found[key]) if key in found else "not set", []).append(name)
        if len(holders) > 1:
            told.append(f"{key}: {', '.join(f'{value} in {both(names)}' for value, names in holders.items())}")
    return told


def flat(table: Table, prefix: str = "") -> dict[str, Any]:
    """A table's values by dotted key."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def shown(value: Any) -> str:
    """A value, cut where it is long.

    >>> shown("a"), len(shown("a" * 1000))
    ('"a"', 40)
    """
    text = json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def both(names: list[str]) -> str:
    """Names in a sentence."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
