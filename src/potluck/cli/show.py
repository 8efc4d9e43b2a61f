"""What the command line shows: progress while it runs, tables when it is done."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from potluck.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from potluck.core.server import Failure
    from potluck.core.types import Update
    from potluck.study.tuning import Timed
    from potluck.study.watchers import Record


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # what terminals obey, but for the ends of lines and tabs


def harmless(text: str) -> str:
    """Text that a terminal shows and does not obey: names in a stranger's files may hold orders to it.

    >>> harmless("phone\\x1b[2J")
    'phone�[2J'
    """
    return CONTROL.sub("\ufffd", text)


class Terminal(Console):
    """A console that obeys no text, and ends quietly when its reader (head, less) has seen enough."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(harmless(text), **how)

    def on_broken_pipe(self) -> None:
        raise SystemExit(0)


console = Terminal()
NOTHING = "-"


class ProgressBar:
    """Shows rounds done, clients done since, and the range of the levels' accuracies when last evaluated."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self.bar, self.task, self.clients, self.failed, self.rounds = bar, task, 0, 0, 0
        self.begun = False

    def tuned(self, ways: Mapping[str, str], timed: Timed) -> None:
        from potluck.study.tuning import told

        self.bar.console.print(told(ways, timed), markup=False, highlight=False)

    def begins(self, rounds: int, done: int) -> None:
        self.begun, self.rounds = True, rounds
        self.bar.update(self.task, total=rounds)
        self.show_round(done)
        if done == rounds:
            from potluck.study.watchers import nothing_left

            self.bar.console.print(nothing_left(rounds), markup=False, highlight=False, soft_wrap=True)

    def client_done(self, update: Update) -> None:
        self.clients += 1
        self.bar.update(self.task, clients=f"client {self.clients}")

    def client_failed(self, failure: Failure) -> None:
        if failure.round != self.failed:  # one line per round: a thousand clients may fail alike
            self.failed = failure.round
            self.bar.console.print(str(failure), markup=False, highlight=False, soft_wrap=True)

    def ends(self, metrics: Sequence[Record]) -> None:
        from potluck.study.watchers import left_out

        if sentence := left_out(metrics):
            self.bar.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def round_done(self, record: Record) -> None:
        self.clients = 0
        self.show_round(record["round"])
        from potluck.study.headline import ACCURACY, headline_of, shown_scores

        found = [value for value in shown_scores(record).values() if value is not None]
        if found:
            measure = headline_of(record)
            whole = measure == ACCURACY
            least, most = (f"{100 * value:.0f}" if whole else f"{value:.3g}" for value in (min(found), max(found)))
            shown = least if least == most else f"{least} to {most}"
            self.bar.update(self.task, scores=f"{measure} {shown}{' %' if whole else ''}")

    def show_round(self, done: int) -> None:
        self.bar.update(self.task, completed=done, round=f"round {done}/{self.rounds}", clients="")


@contextmanager
def progress_bar(title: str) -> Iterator[ProgressBar]:
    """A bar for one run, on a line of its own."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=8),
        TextColumn("{task.fields[round]}"),
        TextColumn("[dim]{task.fields[clients]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("[dim]{task.fields[scores]}"),
    )
    with Progress(*columns, console=console) as bar:
        shown = ProgressBar(bar, bar.add_task(title, total=None, round="", scores="", clients=""))
        try:
            yield shown
        finally:
            if not shown.begun:  # of a run that was refused nothing but the reason is worth a line
                bar.remove_task(shown.task)


def say(sentence: str) -> None:
    """A sentence as it is: paths in it are neither broken nor coloured."""
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def echo(text: str, err: bool = False) -> None:
    """Text for programs, or on stderr: without colours, and with lines of any length."""
    typer.echo(harmless(text), err=err)


def tell(notes: Iterable[str]) -> None:
    """Sentences about what was asked, on stderr."""
    for note in notes:
        echo(f"potluck: {note}", err=True)


def require_svg(picture: Path | None) -> None:
    """Refuse a picture whose name asks for another format; also keeps a slip from replacing a file of a run."""
    if picture is not None and picture.suffix.lower() != ".svg":
        raise ConfigError(f"--picture is {picture}, but pictures are SVG files: its name should end in .svg")


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


def table_of(title: str, columns: Mapping[str, Sequence[Any]], justify: JustifyMethod = "right") -> Table:
    """A table from columns of ready-made texts; the first is a name, the others are figures unless told otherwise."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for position, name in enumerate(columns):
        side: JustifyMethod = justify if position else "left"
        table.add_column(escape(name), justify=side, no_wrap=not position, overflow="fold")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*(escape(str(cell)) for cell in row))
    return table
