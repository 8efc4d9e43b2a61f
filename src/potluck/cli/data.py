"""`potluck data` and `potluck partition`: which data are here, and who would hold what of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.group import Commands
from potluck.cli.options import ConfigPath, DataDir, Overrides, Trust
from potluck.cli.show import console, in_bytes, require_svg, say, tell
from potluck.core.errors import DataError

if TYPE_CHECKING:
    from potluck.core.data import AnyHoldings, Holdings

MOST_DRAWN = 1000  # clients that are shown where all of them would have to be drawn first

data_app = typer.Typer(
    cls=Commands,
    help="The data sets: which are here, and how to get the others.",
    invoke_without_command=True,
    no_args_is_help=False,
)


@data_app.callback()
def survey(context: typer.Context, data_dir: DataDir = None) -> None:
    """List every data set: where it was found, its size, whether it is the published one, its licence."""
    if context.invoked_subcommand is not None:
        return
    from potluck.data import sources

    say(f"Data sets in {data_dir}" if data_dir else "No data folder: set POTLUCK_DATA or give --data-dir")
    for item in sources.survey(data_dir):
        size = in_bytes(item.size) if item.place else ""
        lines = [
            f"{item.about.name:<14} {item.checksum:<12} {size:>10}  {item.place or ''}",
            f"    {item.about.title}",
            f"    licence: {item.about.licence}",
            f"    {item.detail}",
        ]
        say("\n".join(line for line in lines if line.strip()))


@data_app.command()
def fetch(name: Annotated[str, typer.Argument(help="the data set's name")], data_dir: DataDir = None) -> None:
    """Download a data set from its official place, verify it and unpack it; a broken download is resumed."""
    from potluck.data import sources

    sources.about(name)  # a wrong name is told first
    if data_dir is None:
        raise DataError("where should it go? Give --data-dir, or set POTLUCK_DATA")
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from potluck.data.fetch import fetch as download

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console) as bar:
        tasks = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file)
            bar.update(tasks[file], completed=done, total=total)

        paths = download(name, data_dir, show)
    say(f"{name} is in {', '.join(sorted({str(path.parent) for path in paths}))}.")


def written_down(holdings: AnyHoldings) -> Holdings:
    """Holdings to be measured; of those that are drawn when asked for, only the first clients'."""
    from potluck.core.data import Holdings

    if isinstance(holdings, Holdings):
        return holdings
    return Holdings.of_lists([holdings.of(client) for client in range(min(len(holdings), MOST_DRAWN))])


def partition(
    config: ConfigPath,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    picture: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="draw who holds what as an SVG file")] = None,
    trust: Trust = False,
) -> None:
    """Who would hold what in an experiment: sizes, skew, and a picture of clients and classes."""
    require_svg(picture)
    from potluck.data.dataset import all_labels, has_one_label
    from potluck.data.partitions import dropped
    from potluck.data.skew import skew, table
    from potluck.report.holdings_picture import picture as draw
    from potluck.study.config import read_config
    from potluck.study.experiment import from_config

    read = read_config(config, overrides or [], trust)
    experiment = from_config(read, data_dir)
    tell(read.origin.notes)
    examples, holdings = experiment.data, written_down(experiment.holdings)
    goal = experiment.task.goal
    classes = experiment.task.classes or 2  # yes or no counts none
    classed = goal.labelled and has_one_label(examples)
    no_skew = "" if classed else f"with the task '{goal.name}' an example has no class of its own"
    if picture is not None and no_skew:
        raise DataError(f"there is nothing to draw: {no_skew}; leave --picture out")
    if picture is not None:  # before anything is printed: it may turn out to be unwritable
        try:
            draw(table(all_labels(examples).long(), holdings, classes), picture, len(experiment.fleet))
        except OSError as error:
            raise DataError(f"cannot write {picture}: {error.strerror}") from error
    sizes, left_out = holdings.offsets.diff(), dropped(holdings, len(examples))
    who, rest = f"{len(holdings)} clients", "left out"
    if len(holdings) < len(experiment.fleet):
        who, rest = f"The first {len(holdings):,} of {len(experiment.fleet):,} clients", "held by none of them"
    console.print(
        f"{who} hold {len(examples) - left_out:,} of {len(examples):,} examples ({left_out:,} {rest}): "
        f"{int(sizes.min())} to {int(sizes.max())} each, {float(sizes.double().mean()):.1f} on average."
    )
    if no_skew:
        console.print(f"There is no skew to measure: {no_skew}.")
    else:
        console.print(
            f"Skew {skew(all_labels(examples).long(), holdings, classes):.3f} (0: every client like the whole)."
        )
    if picture is not None:
        say(f"Drew {picture}.")
