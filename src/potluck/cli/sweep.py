"""`potluck sweep`: a config at every point of a grid of settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.options import ConfigPath, DataDir, Format, Jobs, Overrides, Trust
from potluck.cli.sheet import print_comparison, require_format
from potluck.cli.show import echo
from potluck.core.errors import RunError

if TYPE_CHECKING:
    from potluck.series.entry import Stage
    from potluck.series.queue import Manner


def sweep(
    config: ConfigPath,
    grid: Annotated[
        list[str],
        typer.Option("--grid", metavar="KEY=VALUES", help="a setting and its values: train.lr=0.01,0.03 or seed=0-4"),
    ],
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="the folder of the runs  [default: runs/NAME-sweep]")] = None,
    jobs: Jobs = 1,
    target: Annotated[
        float | None, typer.Option(help="in the table, also what it took to reach this score, e.g. 0.8")
    ] = None,
    format: Format = None,
    data_dir: DataDir = None,
    trust: Trust = False,
) -> None:
    """Run an experiment with every combination of values, and compare what came out.

    Each combination is an ordinary run in a directory of its own. The same command continues a sweep that was stopped,
    and leaves alone what is finished.
    """
    from potluck.series.entry import stages
    from potluck.series.grid import entries_of_grid
    from potluck.series.played import Played
    from potluck.series.queue import Manner

    require_format(format)
    entries = entries_of_grid(config, overrides or [], grid)
    folder = out or Path("runs") / f"{entries[0].table['name']}-sweep"
    planned = stages(entries, folder, trust)
    failed = play(planned, Manner(jobs, trust, data_dir), folder)
    played = [Played.of(stage.path) for stage in planned if stage.entry.name not in failed]
    if played:
        print_comparison(played, target, format, f" in {folder}")
    require_all(failed, len(planned))


def play(planned: list[Stage], manner: Manner, folder: Path) -> dict[str, str]:
    """Play a queue of runs; why some failed, by name. What it says on the way goes to stderr: tables may be piped."""
    from potluck.series.needs import require_needs
    from potluck.series.queue import Queue

    def say(sentence: str) -> None:
        echo(sentence, err=True)

    require_needs(planned, manner.data_dir)
    queue = Queue(planned, manner, say)
    try:
        queue.play()
    except KeyboardInterrupt:
        say(f"Stopped. What was finished is in {folder}; the same command continues.")
        raise
    return queue.failed


def require_all(failed: dict[str, str], count: int) -> None:
    """End with an error if runs failed."""
    if failed:
        name, why = next(iter(failed.items()))
        raise RunError(
            f"{len(failed)} of {count} runs failed, the first of them {name}: {why}; the same command tries them again"
        )
