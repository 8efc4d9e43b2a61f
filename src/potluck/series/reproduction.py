"""A preset's runs, and their results beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from potluck.core.errors import ConfigError
from potluck.core.plug import unknown
from potluck.series.comparison import best_of, last_of
from potluck.series.entry import Entry, Stage
from potluck.series.groups import Spread
from potluck.series.played import MEAN, Played
from potluck.series.preset import ALONE, Preset, Row
from potluck.series.savings import SAVED, saved
from potluck.series.scale import Scale
from potluck.series.text import Sheet
from potluck.study.headline import ACCURACY
from potluck.study.schema import Table

VALIDATION = 0.2  # of the test examples choose the best round


@dataclass(frozen=True)
class Cell:
    """A row of a preset in one of its cases."""

    row: Row
    case: str

    @property
    def name(self) -> str:
        return self.row.name if self.case == ALONE else f"{self.row.name}.{self.case}"


def cells_of(preset: Preset, asked: Sequence[str]) -> list[Cell]:
    """The rows and cases asked for, as `ROW` or `ROW.CASE`, also with * and ?; all if none is."""
    cells = [Cell(row, case) for row in preset.rows for case in preset.cases_of(row)]
    if not asked:
        return cells
    chosen: list[Cell] = []
    for text in asked:
        found = [cell for cell in cells if fnmatchcase(cell.name, text) or fnmatchcase(cell.row.name, text)]
        if not found:
            raise ConfigError(
                unknown(f"row of {preset.name}", text, dict.fromkeys([cell.row.name for cell in cells] + names(cells)))
            )
        chosen += [cell for cell in found if cell not in chosen]
    return [cell for cell in cells if cell in chosen]


def names(cells: Iterable[Cell]) -> list[str]:
    """What cells are called."""
    return [cell.name for cell in cells]


def entries_of(preset: Preset, cells: Iterable[Cell], seeds: Sequence[int], scale: Scale) -> list[Entry]:
    """A run for each cell and seed."""
    return [entry_of(preset, cell, seed, scale) for cell in cells for seed in seeds]


def entry_of(preset: Preset, cell: Cell, seed: int, scale: Scale) -> Entry:
    """The run of a cell with a seed; its record says which it is, and at which scale."""
    table = scale.applied(preset.config(cell.row, cell.case))
    data = {"validation": VALIDATION, **table["data"]}
    series: Table = {"preset": preset.home, "row": cell.row.name}
    series |= {} if cell.case == ALONE else {"case": cell.case}
    series |= {"scale": scale.cut} if scale.cut else {}
    name = ".".join(filter(None, [cell.name, f"seed{seed}", str(scale)]))
    return Entry(name, {**table, "data": data, "seed": seed, "series": series})


def finished_runs(stages: Iterable[Stage]) -> dict[str, list[Played]]:
    """The finished runs of each cell, by the cell's name."""
    found: dict[str, list[Played]] = {}
    for stage in stages:
        if stage.finished:
            series = stage.entry.table["series"]
            name = series["row"] if "case" not in series else f"{series['row']}.{series['case']}"
            found.setdefault(name, []).append(Played.of(stage.path))
    return found


def reproduction_sheet(preset: Preset, cells: Sequence[Cell], runs: dict[str, list[Played]]) -> Sheet:
    """Ours beside the paper's: last round, best round, the paper's number, the difference."""
    rows, numbers = [], []
    for cell in cells:
        own = runs.get(cell.name, [])
        for score in scores_of(preset, cell, own):
            last, best = spreads_of(preset, cell, score, runs)
            paper = cell.row.paper.get(cell.case, {}).get(score)
            apart = None if last is None or paper is None else last.mean - paper
            rows.append((cell.name, score, shown(last), shown(best), number(paper), signed(apart), str(len(own))))
            numbers.append(numbers_of(preset, cell, score, last, best, paper, apart, len(own)))
    headers = ("row", "level", "last round", "best round", "paper", "difference", "seeds")
    return Sheet(headers, tuple(rows), tuple(numbers))


def spreads_of(
    preset: Preset, cell: Cell, score: str, runs: dict[str, list[Played]]
) -> tuple[Spread | None, Spread | None]:
    """Our score after the last round and in the best one; of what a network saves, there is only one figure."""
    own, (level, measure) = runs.get(cell.name, []), level_and_measure(score, preset)
    if measure in SAVED:
        whole = next(row for row in preset.rows if cell.case in preset.cases_of(row))
        target = preset.targets.get(cell.case)
        share = None if target is None else target / 100 if preset.measure.endswith(ACCURACY) else target
        return Spread.of([saved(own, runs.get(Cell(whole, cell.case).name, []), measure, share)]), None
    last, best = last_of(level, measure), best_of(level, measure)
    after_last, in_best = (Spread.of(figure(value(run), preset, score) for run in own) for value in (last, best))
    return after_last, in_best


def scores_of(preset: Preset, cell: Cell, runs: Sequence[Played]) -> list[str]:
    """What is compared: what the paper reports, or each level and their mean where it has only a picture."""
    reported = list(cell.row.paper.get(cell.case, {}))
    if reported:
        return reported
    levels = list(preset.config(cell.row, cell.case)["fleet"]["levels"])
    return [*levels, *([MEAN] if len(levels) > 1 else [])]


def level_and_measure(score: str, preset: Preset) -> tuple[str, str]:
    """A level and a measure, from `LEVEL` or `LEVEL/MEASURE`."""
    level, _, measure = score.partition("/")
    return level, measure or preset.measure


def figure(value: float | None, preset: Preset, score: str) -> float | None:
    """A score as papers print it: accuracies in percent."""
    _, measure = level_and_measure(score, preset)
    return None if value is None else 100 * value if measure.endswith(ACCURACY) else value


def shown(spread: Spread | None) -> str:
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


def numbers_of(
    preset: Preset,
    cell: Cell,
    score: str,
    last: Spread | None,
    best: Spread | None,
    paper: float | None,
    apart: float | None,
    seeds: int,
) -> dict[str, Any]:
    """A line with full precision."""
    return {
        "preset": preset.name,
        "row": cell.row.name,
        "case": cell.case,
        "score": score,
        "last": last and last.mean,
        "last deviation": last and last.deviation,
        "best": best and best.mean,
        "best deviation": best and best.deviation,
        "paper": paper,
        "difference": apart,
        "seeds": seeds,
    }
