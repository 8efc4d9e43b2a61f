"""A run as others are compared with it: its settings, its records, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from potluck.core.errors import RunError
from potluck.study.best import best_record, score_in
from potluck.study.comparing import flat
from potluck.study.files import is_number
from potluck.study.headline import has_scores, headline_of, shown_scores
from potluck.study.levels import MEAN
from potluck.study.record import RunDirectory
from potluck.study.seal import OLD
from potluck.study.watchers import Record

SPENT: dict[str, tuple[str, ...]] = {
    "bytes": ("bytes_down", "bytes_up"),
    "MACs": ("macs",),
    "seconds": ("seconds_training",),
}
"""What a federation spends, by the figures of a round that count it: for training, not for scoring."""


def runs_inside(path: Path) -> list[Path]:
    """The directories of runs in a folder of runs, such as a sweep's; nothing if it is none."""
    if not path.is_dir() or (path / "config.toml").exists():
        return []
    return sorted(each.parent for each in path.glob("*/config.toml"))


def runs_in(paths: Iterable[Path]) -> tuple[list[Played], list[str]]:
    """The runs at these paths and in folders of runs; and why some of those in folders are left out.

    A folder may hold a run that has just begun, or that was damaged. One that is asked for by its own path is refused.
    """
    found: dict[Path, Played] = {}
    left_out = []
    for path in paths:
        inside = runs_inside(path)
        if not inside:
            found[path] = Played.of(path)
        for each in inside:
            try:
                if (run := Played.of(each)).evaluated:  # refuses one without a scored round
                    found[each] = run
            except RunError as error:
                left_out.append(f"{error}; it is left out")
    if not found:
        raise RunError(f"no run can be compared: {left_out[0]}")
    return list(found.values()), left_out


@dataclass(frozen=True)
class Played:
    """What a run was asked, and what came of it."""

    path: Path
    settings: Mapping[str, Any]  # by dotted key
    records: Sequence[Record]

    @classmethod
    def of(cls, path: Path) -> Played:
        """The run in a directory."""
        run = RunDirectory(path)
        begun = run.config.exists() and not run.metrics.exists()
        records = [] if begun else run.records()
        if not records:
            raise RunError(f"{path} has no finished round yet")
        for record in records:
            require_sound(record, run.metrics)
        return cls(path, flat(run.settings()), records)

    @cached_property
    def evaluated(self) -> list[int]:
        """The places of the records that have scores."""
        found = [at for at, record in enumerate(self.records) if any_score(record)]
        if not found:
            raise RunError(f"{self.path} has no scored round yet")
        return found

    @cached_property
    def measure(self) -> str:
        """The most telling measure that it has."""
        return headline_of(self.records[self.evaluated[-1]])

    @property
    def levels(self) -> list[str]:
        return list(self.records[0]["levels"])

    @property
    def rounds(self) -> int:
        return len(self.records)

    @property
    def seed(self) -> Any:
        return self.settings.get("seed")

    def score(self, at: int, level: str, measure: str = "") -> float | None:
        """A measure in the record at a place: of a level, or the mean over all levels that have it."""
        return score_in(self.records[at]["levels"], measure or self.measure, named(level))

    def last(self, level: str, measure: str = "") -> float | None:
        """A measure after the last scored round."""
        return self.score(self.evaluated[-1], level, measure)

    @property
    def chooses(self) -> bool:
        """Whether some test examples were set aside to choose the best round."""
        return any(record.get("validation") for record in self.records)

    def best_score(self, level: str, measure: str = "") -> float | None:
        """A measure of a level, or of the mean, in the round that is the best by that same figure; on the examples that
        did not choose it."""
        measure = measure or self.measure
        found = best_record(self.records, measure, named(level))
        return None if found is None else score_in(found["rest"], measure, named(level))

    def spent(self, what: str) -> list[float]:
        """What was spent up to the end of each round."""
        return list(accumulate(float(sum(record[key] for key in SPENT[what])) for record in self.records))


def named(level: str) -> str | None:
    """A level; nothing for the mean over all of them."""
    return None if level == MEAN else level


def any_score(record: Record) -> bool:
    """Whether a round was scored."""
    return any(value is not None for value in shown_scores(record).values())


def require_sound(record: Record, path: Path) -> None:
    """Refuse a record that lacks what is compared."""
    numbers = [key for keys in SPENT.values() for key in keys]
    sound = bool(record.get("levels")) and has_scores(record["levels"])
    if record.get("validation"):
        sound = sound and has_scores(record["validation"]) and has_scores(record.get("rest"))
    if not sound or not all(is_number(record.get(key)) for key in numbers):
        raise RunError(f"{path} has a record of round {record['round']} that makes no sense: {OLD}")
