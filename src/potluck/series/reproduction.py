"""A preset's runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from potluck.core.errors import ConfigError
from potluck.core.plug import unknown
from potluck.series.entry import Entry, Stage
from potluck.series.played import Played
from potluck.series.preset import ALONE, Preset, Row
from potluck.series.savings import SAVED
from potluck.series.scale import Scale
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


def with_whole(preset: Preset, cells: Sequence[Cell]) -> list[Cell]:
    """Cells, and those of the whole network whose costs the savings of these are shares of."""
    wholes = [Cell(whole_of(preset, cell.case), cell.case) for cell in cells if saves(cell)]
    return [*cells, *(whole for at, whole in enumerate(wholes) if whole not in [*cells, *wholes[:at]])]


def saves(cell: Cell) -> bool:
    """Whether the paper says what this network saves."""
    return any(score.endswith(tuple(SAVED)) for score in cell.row.paper.get(cell.case, {}))


def whole_of(preset: Preset, case: str) -> Row:
    """The first row of a preset in a case, which is that of the whole network where savings are reported."""
    return next(row for row in preset.rows if case in preset.cases_of(row))
