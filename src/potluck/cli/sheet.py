"""Sheets of figures on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import JustifyMethod

from potluck.cli.show import console, echo, in_bytes, quantity, say, table_of, tell
from potluck.core.errors import ConfigError
from potluck.core.plug import unknown

if TYPE_CHECKING:
    from potluck.series.comparison import Shown
    from potluck.series.played import Played
    from potluck.series.text import Sheet

WIDE = 240  # columns of text that is not read on a terminal


def require_format(name: str | None) -> None:
    """Refuse a format that there is not, before anything is done."""
    from potluck.series.text import FORMATS

    if name is not None and name not in FORMATS:
        raise ConfigError(f"--format: {unknown('format', name, FORMATS)}")


def print_sheet(title: str, sheet: Sheet, format: str | None, justify: JustifyMethod = "right") -> None:
    """A sheet as a table, or as text in a format."""
    from potluck.series.text import FORMATS

    if format is not None:
        echo(FORMATS[format](sheet))
        return
    columns = {header: [row[at] for row in sheet.rows] for at, header in enumerate(sheet.headers)}
    console.print(table_of(title, columns, justify=justify), width=None if console.is_terminal else WIDE)
    for note in sheet.notes:
        say(note)


def print_comparison(runs: Sequence[Played], target: float | None, format: str | None, where: str = "") -> None:
    """Groups of runs: on a terminal one table of how good they are, and others of what that cost."""
    from potluck.series.comparison import common_measure, comparison_sheet, doubts, require_target
    from potluck.series.costs import LEEWAY

    measure = common_measure(runs)
    if target is not None:
        require_target(target, measure)
    tell(doubts(runs))
    if format is not None:
        print_sheet("", comparison_sheet(runs, target, shown()), format)
        return
    title = f"{len(runs)} runs{where}: {measure} after the last round"
    print_sheet(title, comparison_sheet(runs, target, shown(), "scores"), None)
    equal = f"The mean over the levels, at an equal cost (within {100 * LEEWAY:g} %)"
    print_sheet(equal, comparison_sheet(runs, target, shown(), "equal"), None)
    if target is not None:
        print_sheet("What the mean took to get there", comparison_sheet(runs, target, shown(), "target"), None)


def shown() -> Shown:
    """How figures are written for people."""
    from potluck.series.comparison import Shown

    return Shown(quantity, in_bytes)
