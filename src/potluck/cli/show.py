"""What the command line shows: progress while it runs, tables when it is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from potluck.core.types import Update
from potluck.study.run import Record

console = Console()
NOTHING = "-"


class ProgressBar:
    """Shows a run's rounds as a bar, with the accuracy of every level as of the last evaluation."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self.bar, self.task, self.clients = bar, task, 0

    def begins(self, rounds: int, done: int) -> None:
        self.bar.update(self.task, total=rounds, completed=done)

    def client_done(self, update: Update) -> None:
        self.clients += 1
        self.bar.update(self.task, clients=f"{self.clients} clients")

    def round_done(self, record: Record) -> None:
        self.clients = 0
        self.bar.update(self.task, completed=record["round"])
        accuracies = {name: found["accuracy"] for name, found in record["levels"].items()}
        if any(accuracy is not None for accuracy in accuracies.values()):
            shown = "  ".join(f"{name} {percent(accuracy)}" for name, accuracy in accuracies.items())
            self.bar.update(self.task, scores=shown)


@contextmanager
def progress_bar(title: str) -> Iterator[ProgressBar]:
    """A bar for one run, on a line of its own."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[scores]}"),
    )
    with Progress(*columns, console=console) as bar:
        yield ProgressBar(bar, bar.add_task(title, total=None, scores="", clients=""))


def percent(share: float | None) -> str:
    """An accuracy for people."""
    return NOTHING if share is None else f"{100 * share:.1f} %"


def quantity(number: float | None) -> str:
    """A large number for people: 1.6M, 391.4K."""
    if number is None:
        return NOTHING
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if number >= size:
            return f"{number / size:.1f}{suffix}"
    return f"{number:g}"


def in_bytes(number: float | None) -> str:
    """A number of bytes for people."""
    if number is None:
        return NOTHING
    for size, suffix in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= size:
            return f"{number / size:.1f} {suffix}"
    return f"{number:.0f} B"


def table_of(title: str, columns: Mapping[str, Sequence[Any]]) -> Table:
    """A table from columns of ready-made texts; the first is a name, the others are figures."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for position, name in enumerate(columns):
        table.add_column(name, justify="right" if position else "left", no_wrap=not position)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(str, row))
    return table
