"""What is kept of finished reproductions: a config and metrics each, and the tables that are made of them.

A run whose directory has nothing else is a record. A file `earlier.txt` in it says in a sentence what has changed
since: then it is of an earlier version of its preset, and stands in no table.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from potluck.core.errors import PotluckError, RunError
from potluck.series.entry import stage_of
from potluck.series.played import Played
from potluck.series.preset import ALONE, Preset, preset_named, presets
from potluck.series.reproduction import Cell, cells_of, entry_of
from potluck.series.results import reproduction_sheet
from potluck.series.scale import Scale
from potluck.series.text import as_markdown
from potluck.study.record import RunDirectory
from potluck.study.seal import section

KEPT = ("config.toml", "metrics.jsonl")
EARLIER = "earlier.txt"
BEGIN, END = "<!-- tables of results/: make records -->", "<!-- end of the tables -->"
NOTHING = "No finished run is kept yet."


@dataclass(frozen=True)
class Kept:
    """A finished run of a preset."""

    path: Path
    preset: Preset
    cell: Cell
    scale: str
    earlier: str = ""  # what has changed since, if something has


def keep(folder: Path, into: Path) -> tuple[list[Path], list[str]]:
    """Copy what is kept of the finished runs in a folder of results; and why some cannot be kept."""
    copied, left_out = [], []
    for config in sorted(folder.glob("*/*/config.toml")):
        try:
            kept_of(config.parent)
        except PotluckError as error:
            left_out.append(f"{error}; it is not kept")
            continue
        place = into / config.parent.relative_to(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name in KEPT:
            shutil.copyfile(config.parent / name, place / name)
        copied.append(place)
    return copied, left_out


def records_in(folder: Path) -> list[Kept]:
    """The records in a folder of results."""
    return [kept_of(path) for path in sorted(folder.glob("*/*")) if is_record(path)]


def is_record(path: Path) -> bool:
    """Whether a directory has what is kept of a run, and nothing else."""
    return path.is_dir() and {each.name for each in path.iterdir()} - {EARLIER} == set(KEPT)


def kept_of(path: Path) -> Kept:
    """A finished run, which must be what its preset asks for, unless it says what has changed since."""
    settings = RunDirectory(path).settings()
    series = section(settings, "series")
    preset, case = preset_named(str(series.get("preset"))), series.get("case", ALONE)
    cell = next(
        (each for each in cells_of(preset, []) if (each.row.name, each.case) == (series.get("row"), case)), None
    )
    cut = ",".join(f"{name}={share}" for name, share in section(series, "scale").items())
    scale = Scale.read(cut or "1")
    told = path / EARLIER
    if told.exists():
        Played.of(path)  # refuses what cannot be read
        return Kept(path, preset, cell or cells_of(preset, [])[0], str(scale), told.read_text(encoding="utf-8").strip())
    if cell is None:
        raise RunError(f"{path} is of row {series.get('row')}, case {case!r}, which {preset.name} does not have")
    entry = entry_of(preset, cell, settings.get("seed", 0), scale)
    if path != path.parents[1] / preset.home / entry.name:
        raise RunError(f"{path} should be in {preset.home}/{entry.name}, by what its config says")
    stage = stage_of(entry, path, trust=False)
    if not stage.finished:
        raise RunError(f"{path} is not finished")
    return Kept(path, preset, cell, str(scale))


def tables(folder: Path) -> str:
    """All records beside the papers' numbers, in Markdown: a table for each preset and scale."""
    records = records_in(folder)
    found = [part for preset in presets().values() for part in parts_of(preset, records)]
    found += [
        f"`{each.path.parent.name}/{each.path.name}` is not counted: {each.earlier}" for each in records if each.earlier
    ]
    return "\n\n".join(found or [NOTHING])


def parts_of(preset: Preset, records: Sequence[Kept]) -> Iterator[str]:
    """The tables of a preset: at full scale, then at smaller ones."""
    own = [each for each in records if each.preset.name == preset.name and not each.earlier]
    for scale in sorted({each.scale for each in own}):
        runs: dict[str, list[Played]] = {}
        for each in own:
            if each.scale == scale:
                runs.setdefault(each.cell.name, []).append(Played.of(each.path))
        cells = [cell for cell in cells_of(preset, []) if cell.name in runs]
        yield f"### {preset.title}"
        command = f"potluck reproduce {preset.name}" + (f" --scale {scale}" if scale else "")
        yield " ".join(filter(None, [f"{preset.source}. `{command}`.", preset.note]))
        yield as_markdown(reproduction_sheet(preset, cells, runs))


def page_with(page: str, text: str) -> str:
    """A page with this text between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise RunError(f"the page has no {BEGIN} followed by {END}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"
