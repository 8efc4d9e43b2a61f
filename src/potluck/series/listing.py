"""The presets: what each has, what it would cost, and what is done of it in a folder of results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from potluck.core.errors import RunError
from potluck.series.preset import Preset, presets
from potluck.series.price import price
from potluck.series.reproduction import Cell, cells_of
from potluck.series.results import footnotes, marks_of, misprint, printed
from potluck.series.text import Sheet
from potluck.study.config import parse_config
from potluck.study.files import is_number
from potluck.study.journal import read_records
from potluck.study.levels import MEAN
from potluck.study.record import RunDirectory
from potluck.study.schema import Origin
from potluck.study.seal import section

NOTHING = "-"


@dataclass(frozen=True)
class Done:
    """A run in a folder of results."""

    cell: str
    rounds: int
    planned: int
    seconds: float

    @property
    def finished(self) -> bool:
        return self.rounds >= self.planned


def overview(folder: Path) -> tuple[Sheet, list[str]]:
    """A row per preset, and why some runs are not counted. Costs are not told: to count them all takes minutes."""
    found = list(presets().values())
    rows, numbers, damaged = [], [], dict[str, None]()
    for preset in found:
        sound = list(sound_runs(folder, preset, damaged))
        runs, done = len(cells_of(preset, [])), finished_in(sound, preset)
        rows.append((preset.name, preset.title, str(runs), str(done) if done else NOTHING))
        numbers.append(
            {"preset": preset.name, "paper": preset.source, "what": preset.title, "runs": runs, "finished": done}
        )
    sheet = Sheet(("preset", "what", "runs", "finished"), tuple(rows), tuple(numbers), tuple(papers_of(found)))
    return sheet, list(damaged)


def papers_of(found: Iterable[Preset]) -> Iterator[str]:
    """Which presets are of which paper; those of one stand together."""
    for source, own in groupby(found, key=lambda preset: preset.source):
        first, *others = [preset.name for preset in own]
        yield f"{first} to {others[-1]}: {source}." if others else f"{first}: {source}."


def finished_in(done: Iterable[Done], preset: Preset) -> int:
    """How many experiments of a preset have a finished run."""
    own = {cell.name for cell in cells_of(preset, [])}
    return len({run.cell for run in done if run.finished} & own)


def sound_runs(folder: Path, preset: Preset, damaged: dict[str, None]) -> Iterator[Done]:
    """The runs of a preset that can be read; why others cannot is noted once, though several presets have them."""
    for path in directories(folder, preset):
        try:
            yield from run_in(path, preset)
        except RunError as error:
            damaged[f"{error}; it is not counted"] = None


def details(preset: Preset, folder: Path, macs_per_second: float) -> Sheet:
    """A row per experiment of a preset: the paper's numbers, the cost at full scale, and what is done."""
    rows, numbers = [], []
    done = [run for path in directories(folder, preset) for run in run_in(path, preset)]
    cells = cells_of(preset, [])
    marks = marks_of(misprint(cell, score) for cell in cells for score in shown_of(cell))
    for cell in cells:
        macs = price(parse_config(preset.config(cell.row, cell.case), Origin())).macs
        hours = macs / macs_per_second / 3600
        own = [run for run in done if run.cell == cell.name]
        told = ", ".join(f"{score} {printed(cell, score, marks)}" for score in shown_of(cell)) or NOTHING
        rows.append((cell.name, told, f"{macs:.1e}", f"{hours:.1f}", stage_of(own)))
        numbers.append(numbers_of(preset, cell, macs, hours, own))
    return Sheet(("row", "the paper", "MACs", "hours", "done"), tuple(rows), tuple(numbers), footnotes(marks))


def shown_of(cell: Cell) -> list[str]:
    """Which of the paper's numbers are shown: the means alone, if it has some."""
    paper = cell.row.paper.get(cell.case, {})
    return [score for score in paper if score.partition("/")[0] == MEAN] or list(paper)


def numbers_of(preset: Preset, cell: Cell, macs: int, hours: float, done: Sequence[Done]) -> dict[str, object]:
    """An experiment of a preset with full precision."""
    finished = [run for run in done if run.finished]
    return {
        "preset": preset.name,
        "paper": preset.source,
        "row": cell.row.name,
        "case": cell.case,
        "reported": cell.row.paper.get(cell.case, {}),
        "reported deviations": cell.row.deviations.get(cell.case, {}),
        "misprints": {score: wrong for score in cell.row.paper.get(cell.case, {}) if (wrong := misprint(cell, score))},
        "MACs": macs,
        "estimated hours": hours,
        "finished": len(finished),
        "seconds": sum(run.seconds for run in finished) / len(finished) if finished else None,
    }


def stage_of(done: Iterable[Done]) -> str:
    """How far the runs of an experiment have come.

    >>> stage_of([Done("a", 200, 200, 3600.0), Done("a", 20, 200, 300.0)])
    '1 run, 20 of 200 rounds'
    """
    runs = list(done)
    finished = sum(run.finished for run in runs)
    parts = [f"{finished} run{'' if finished == 1 else 's'}"] if finished else []
    parts += [f"{run.rounds} of {run.planned} rounds" for run in runs if not run.finished]
    return ", ".join(parts) or NOTHING


def directories(folder: Path, preset: Preset) -> list[Path]:
    """The directories of a preset's runs in a folder of results."""
    return sorted(path.parent for path in (folder / preset.home).glob("*/config.toml"))


def run_in(path: Path, preset: Preset) -> Iterator[Done]:
    """The run in a directory, if it is one of a preset at full scale."""
    run = RunDirectory(path)
    settings = run.settings()
    series, planned = section(settings, "series"), section(settings, "task").get("rounds")
    if series.get("preset") == preset.home and "scale" not in series and isinstance(planned, int):
        records = read_records(run.metrics) if run.metrics.exists() else []
        spent = (record.get("seconds", 0.0) for record in records)
        cell = ".".join(filter(None, [str(series.get("row")), str(series.get("case", ""))]))
        yield Done(cell, len(records), planned, float(sum(seconds for seconds in spent if is_number(seconds))))
