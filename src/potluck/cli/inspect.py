"""`potluck inspect`: what a run's method recorded about itself, in tables and pictures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli.options import AsJson, Trust
from potluck.cli.show import NOTHING, console, echo, require_svg, say, table_of

if TYPE_CHECKING:
    from potluck.report.inspection import NumberTable
    from potluck.study.record import RunDirectory


def inspect(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the directory of a run")],
    picture: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="draw it all as an SVG file")] = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """What a run's method recorded about itself: effective ranks, how orthogonal bases are, and the like."""
    require_svg(picture)
    from potluck.report.inspection import quantities, tables
    from potluck.study.record import RunDirectory

    record = RunDirectory(run)
    found = tables(quantities(record))
    config = record.settings()
    name, method, rounds = str(config["name"]), str(config["method"]["name"]), record.records()[-1]["round"]
    drew = picture is not None and draw(record, picture, f"{name} ({method}), {rounds} rounds", trust)
    if as_json:
        content = {"name": name, "method": method, "rounds": rounds, "tables": [plain(table) for table in found]}
        typer.echo(json.dumps(content, indent=1))
    else:
        for table in found:
            console.print(shown(table))
        if not found:
            say(f"{method} has no diagnostics; scores are in {record.metrics}.")
    if picture is not None:
        told = f"Drew {picture}." if drew else f"There is nothing to draw: {picture} was not written."
        echo(told, err=True) if as_json else say(told)


def draw(record: RunDirectory, picture: Path, title: str, trust: bool) -> bool:
    """Draw a run, unless there is nothing to see; whether there was."""
    from potluck.core.checkpoint import write_atomically
    from potluck.report.inspection import panels_of
    from potluck.report.pictures import page

    panels = panels_of(record, trust)
    if panels:
        write_atomically(picture, page(title, panels).encode())
    return bool(panels)


def shown(table: NumberTable) -> Any:
    """A table for people."""
    columns = zip(table.columns, zip(*table.rows.values(), strict=True), strict=True)
    return table_of(
        table.title,
        {"": list(table.rows), **{name: [figure(number) for number in column] for name, column in columns}},
    )


def figure(number: float | None) -> str:
    """A number in three digits, or in all of those before the point: 12345, 0.120, 1.23e-5."""
    if number is None:
        return NOTHING
    if isinstance(number, int) or 1000 <= abs(number) < 1e6:
        return f"{number:.0f}"
    return f"{number:#.3g}".removesuffix(".").replace("e-0", "e-").replace("e+0", "e")


def plain(table: NumberTable) -> dict[str, Any]:
    """A table as JSON has it, which knows no numbers that are not finite."""
    rows = {
        name: [n if n is not None and math.isfinite(n) else None for n in numbers]
        for name, numbers in table.rows.items()
    }
    return {"title": table.title, "columns": list(table.columns), "rows": rows}
