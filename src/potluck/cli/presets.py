"""`potluck presets` and `potluck reproduce`: the papers' experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli.options import AsJson, DataDir, Format, Jobs
from potluck.cli.sheet import print_sheet, require_format
from potluck.cli.show import tell
from potluck.cli.sweep import play, require_all

RESULTS = Path("results")
Results = Annotated[Path, typer.Option("--out", help="the folder of the results")]


def presets(
    name: Annotated[str | None, typer.Argument(metavar="[PRESET]", help="show its experiments, one by one")] = None,
    out: Results = RESULTS,
    as_json: AsJson = False,
) -> None:
    """The papers' tables and figures, and what is done of them in a folder of results.

    With a PRESET: each of its experiments with the paper's numbers, its full cost in MACs, and about how many hours
    this machine would take.
    """
    from potluck.series.listing import details, overview
    from potluck.series.pace import macs_per_second
    from potluck.series.preset import preset_named

    format = "json" if as_json else None
    if name is None:
        sheet, damaged = overview(out)
        print_sheet("Presets", sheet, format, justify="left")
        tell(damaged)
        return
    preset = preset_named(name)
    print_sheet(preset.title, details(preset, out, macs_per_second()), format, justify="left")
    tell([f"From {preset.source}.", *([f"Note: {preset.note}"] if preset.note else [])])


def reproduce(
    name: Annotated[str, typer.Argument(metavar="PRESET", help="a table or figure; `potluck presets` lists them")],
    rows: Annotated[
        str | None, typer.Option(help="only these: ROW or ROW.CASE, with * and ?, e.g. 'e,d-e' or '*.iid'")
    ] = None,
    scale: Annotated[
        str, typer.Option(help="a share of the rounds (0.1), or of more: rounds=0.1,clients=0.5,width=0.25")
    ] = "1",
    seeds: Annotated[str, typer.Option(help="e.g. 0-2 or 0,3,5")] = "0",
    target: Annotated[
        float | None, typer.Option(help="count what a network saves up to this score, e.g. 0.8, not up to the paper's")
    ] = None,
    jobs: Jobs = 1,
    out: Results = RESULTS,
    format: Format = None,
    data_dir: DataDir = None,
) -> None:
    """Run a table or figure of a paper, in full or at a smaller scale, and show it beside the paper's numbers.

    Runs are ordinary runs, each in a directory of its own: the same command continues what was stopped. The best round
    is chosen on a fifth of the test examples and scored on the others.
    """
    from potluck.series.entry import stages
    from potluck.series.grid import seeds_of
    from potluck.series.preset import preset_named
    from potluck.series.queue import Manner
    from potluck.series.reproduction import cells_of, entries_of, finished_runs, with_whole
    from potluck.series.results import reproduction_sheet, require_costs
    from potluck.series.scale import Scale

    require_format(format)
    preset = preset_named(name)
    cells = cells_of(preset, [] if rows is None else [row.strip() for row in rows.split(",")])
    require_costs(preset, cells, target)
    numbers, share, folder = seeds_of(seeds), Scale.read(scale), out / preset.home
    entries = entries_of(preset, cells, numbers, share)
    failed = play(stages(entries, folder), Manner(jobs, data_dir=data_dir), folder)
    found = finished_runs(stages(entries_of(preset, with_whole(preset, cells), numbers, share), folder))
    print_sheet(preset.title, reproduction_sheet(preset, cells, found, target), format)
    require_all(failed, len(entries))
