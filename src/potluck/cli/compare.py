"""`potluck compare`: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli.options import Format
from potluck.cli.sheet import print_comparison, require_format
from potluck.cli.show import console, echo, tell

FEW = 6  # runs that fit side by side


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="directories of runs, or folders of runs such as a sweep's")
    ],
    target: Annotated[
        float | None, typer.Option(help="also what it took to reach this score, e.g. 0.8 for 80 % on average")
    ] = None,
    format: Format = None,
) -> None:
    """Runs side by side: accuracy per level, and what it cost. Says what differs if they cannot be compared.

    Runs that differ only in their seed are one group: the table has mean and deviation, the score at equal bytes, MACs
    and seconds, and with --target what it took to get there.
    """
    from potluck.cli.summary import comparison, summarise, warning
    from potluck.series.groups import asked, grouped
    from potluck.series.played import runs_in

    require_format(format)
    played, left_out = runs_in(runs)
    tell(left_out)
    groups = grouped(played)
    alone = not any(len({run.seed for run in group.runs}) > 1 for group in groups)
    if alone and len(played) <= FEW and target is None and format is None:
        found = {str(run.path): summarise(run.path) for run in played}
        console.print(comparison("Comparison", found))
        told = warning({name: run.settings for name, run in found.items()})
    else:
        print_comparison(played, target, format)
        told = warning({group.name: asked(group) for group in groups})
    for line in told:
        echo(line, err=True)
