"""A preset's results beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from potluck.core.errors import ConfigError
from potluck.series.comparison import require_target
from potluck.series.groups import Spread
from potluck.series.played import Played
from potluck.series.preset import Preset
from potluck.series.reproduction import Cell, saves, whole_of
from potluck.series.savings import SAVED, saved
from potluck.series.text import Sheet
from potluck.study.headline import ACCURACY
from potluck.study.levels import MEAN

Runs = Mapping[str, Sequence[Played]]
"""The finished runs of each cell, by the cell's name."""

HEADERS = ("row", "level", "last round", "best round", "paper", "difference", "seeds")
NO_TARGET = "What is saved is counted up to a target, and this figure has none in numbers: give --target, such as 0.8."


@dataclass(frozen=True)
class Line:
    """A score of ours, beside the paper's."""

    cell: Cell
    score: str
    last: Spread | None
    best: Spread | None
    seeds: int

    @property
    def paper(self) -> float | None:
        return self.cell.row.paper.get(self.cell.case, {}).get(self.score)

    @property
    def difference(self) -> float | None:
        """How far our last round is from the paper, unless what it prints is known to be wrong."""
        wrong = misprint(self.cell, self.score)
        return None if self.last is None or self.paper is None or wrong else self.last.mean - self.paper

    def shown(self, marks: Mapping[str, int]) -> tuple[str, ...]:
        """The line for people."""
        paper = printed(self.cell, self.score, marks)
        ours = (spread_text(self.last), spread_text(self.best))
        return self.cell.name, self.score, *ours, paper, signed(self.difference), str(self.seeds)

    def numbers(self) -> dict[str, Any]:
        """The line with full precision, but for whose it is."""
        return {
            "row": self.cell.row.name,
            "case": self.cell.case,
            "score": self.score,
            "last": self.last and self.last.mean,
            "last deviation": self.last and self.last.deviation,
            "best": self.best and self.best.mean,
            "best deviation": self.best and self.best.deviation,
            "paper": self.paper,
            "paper deviation": self.cell.row.deviations.get(self.cell.case, {}).get(self.score),
            "misprint": misprint(self.cell, self.score),
            "difference": self.difference,
            "seeds": self.seeds,
        }


def reproduction_sheet(preset: Preset, cells: Sequence[Cell], runs: Runs, target: float | None = None) -> Sheet:
    """Ours beside the paper's: last round, best round, the paper's number, the difference."""
    lines = [line_of(preset, cell, score, runs, target) for cell in cells for score in scores_of(preset, cell)]
    marks = marks_of(misprint(line.cell, line.score) for line in lines)
    notes = footnotes(marks)
    if any(saves(cell) and target_of(preset, cell.case, target) is None for cell in cells):
        notes = (*notes, NO_TARGET)
    numbers = tuple({"preset": preset.name, **line.numbers()} for line in lines)
    return Sheet(HEADERS, tuple(line.shown(marks) for line in lines), numbers, notes)


def require_costs(preset: Preset, cells: Iterable[Cell], target: float | None) -> None:
    """Refuse a target that no score can reach, and one where nothing is counted up to a target."""
    if target is None:
        return
    require_target(target, preset.measure)
    if not any(map(saves, cells)):
        raise ConfigError(
            f"--target is {target:g}, but these rows of {preset.name} have no costs up to a target; leave it out"
        )


def line_of(preset: Preset, cell: Cell, score: str, runs: Runs, target: float | None) -> Line:
    """Our score after the last round and in the best one; of what a network saves, there is only one figure."""
    own, (level, measure) = runs.get(cell.name, []), level_and_measure(score, preset)
    if measure in SAVED:
        whole = runs.get(Cell(whole_of(preset, cell.case), cell.case).name, [])
        share = saved(own, whole, measure, target_of(preset, cell.case, target))
        return Line(cell, score, Spread.of([share]), None, len(own))
    unit = 100 if measure.endswith(ACCURACY) else 1  # papers print accuracies in percent
    last = Spread.of(in_units(run.last(level, measure), unit) for run in own)
    best = Spread.of(in_units(run.best_score(level, measure), unit) for run in own)
    return Line(cell, score, last, best, len(own))


def in_units(value: float | None, unit: int) -> float | None:
    """A score as papers print it."""
    return None if value is None else unit * value


def target_of(preset: Preset, case: str, target: float | None) -> float | None:
    """The score that costs are counted up to: the one asked for, else the paper's."""
    if target is not None or case not in preset.targets:
        return target
    return preset.targets[case] / (100 if preset.measure.endswith(ACCURACY) else 1)


def scores_of(preset: Preset, cell: Cell) -> list[str]:
    """What is compared: what the paper reports; if that is costs alone, or a picture, also each level and the mean."""
    reported = list(cell.row.paper.get(cell.case, {}))
    if any(level_and_measure(score, preset)[1] not in SAVED for score in reported):
        return reported
    levels = list(preset.config(cell.row, cell.case)["fleet"]["levels"])
    levels += [MEAN] if len(levels) > 1 else []
    measures = preset.shows or (preset.measure,)
    return [*reported, *(score_name(level, measure, preset) for level in levels for measure in measures)]


def score_name(level: str, measure: str, preset: Preset) -> str:
    """A level and a measure in one word: `LEVEL`, or `LEVEL/MEASURE` if it is not the preset's."""
    return level if measure == preset.measure else f"{level}/{measure}"


def level_and_measure(score: str, preset: Preset) -> tuple[str, str]:
    """A level and a measure, from `LEVEL` or `LEVEL/MEASURE`."""
    level, _, measure = score.partition("/")
    return level, measure or preset.measure


def misprint(cell: Cell, score: str) -> str | None:
    """What is wrong with a number that a paper prints, if that is known."""
    return cell.row.misprints.get(f"{cell.case}.{score}")


def marks_of(misprints: Iterable[str | None]) -> dict[str, int]:
    """A number for each footnote."""
    return {text: at for at, text in enumerate(dict.fromkeys(filter(None, misprints)), start=1)}


def footnotes(marks: Mapping[str, int]) -> tuple[str, ...]:
    """What stands below a table of the paper's numbers."""
    return tuple(f"[{mark}] A misprint: {text}." for text, mark in marks.items())


def printed(cell: Cell, score: str, marks: Mapping[str, int]) -> str:
    """The paper's number with its deviation, and the mark of its footnote."""
    text = number(cell.row.paper.get(cell.case, {}).get(score))
    deviation, wrong = cell.row.deviations.get(cell.case, {}).get(score), misprint(cell, score)
    text += "" if deviation is None else f" ± {deviation:.2f}"
    return f"{text} [{marks[wrong]}]" if wrong else text


def spread_text(spread: Spread | None) -> str:
    """Mean and deviation."""
    if spread is None:
        return "-"
    return number(spread.mean) + ("" if spread.deviation is None else f" ± {spread.deviation:.2f}")


def number(value: float | None) -> str:
    """A figure with two digits behind the point."""
    return "-" if value is None else f"{value:.2f}"


def signed(value: float | None) -> str:
    """A difference."""
    return "-" if value is None else f"{value:+.2f}"
