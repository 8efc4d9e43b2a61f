"""A table as text for people and programs: CSV, JSON, LaTeX, Markdown."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ESCAPED = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
ESCAPED |= {letter: f"\\{letter}" for letter in "&%$#_{}"}


@dataclass(frozen=True)
class Sheet:
    """A table: what people read, and the numbers behind it."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[Mapping[str, Any], ...]  # a row each, with full precision
    notes: tuple[str, ...] = ()  # below the table


def as_csv(sheet: Sheet) -> str:
    """The numbers, one line per row, under names that occur in any of them."""
    names = list(dict.fromkeys(name for row in sheet.numbers for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sheet.numbers)
    return file.getvalue().rstrip("\n")


def as_json(sheet: Sheet) -> str:
    """The numbers as a list of rows; JSON has no number that is not finite, so those are null."""
    rows = [{key: None if is_infinite(value) else value for key, value in row.items()} for row in sheet.numbers]
    return json.dumps(rows, indent=1)


def is_infinite(value: Any) -> bool:
    """Whether a value is a number, but none that can be reckoned with, such as the loss of a run that diverged."""
    return isinstance(value, float) and not math.isfinite(value)


def as_latex(sheet: Sheet) -> str:
    """What people read, for a paper that uses booktabs."""
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(sheet.headers) - 1)}}}", r"\toprule", latex_row(sheet.headers)]
    lines += [r"\midrule", *map(latex_row, sheet.rows), r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par {latex(note)}" for note in sheet.notes]
    return "\n".join(lines)


def latex_row(cells: Sequence[str]) -> str:
    """A row in LaTeX.

    >>> latex_row(["a_b", "91.2 ± 0.3 %"])
    'a\\\\_b & 91.2 $\\\\pm$ 0.3 \\\\% \\\\\\\\'
    """
    return " & ".join(map(latex, cells)) + r" \\"


def latex(text: str) -> str:
    """Text in LaTeX."""
    plain = re.sub(r"[\\~^&%$#_{}]", lambda found: ESCAPED[found[0]], text)
    return plain.replace("±", r"$\pm$")


def as_markdown(sheet: Sheet) -> str:
    """What people read, for a page of text."""
    lines = [sheet.headers, ("---",) * len(sheet.headers), *sheet.rows]
    rows = ["| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines]
    return "\n".join(rows + [f"\n{note}" for note in sheet.notes])


FORMATS: dict[str, Callable[[Sheet], str]] = {
    "csv": as_csv,
    "json": as_json,
    "latex": as_latex,
    "markdown": as_markdown,
}
