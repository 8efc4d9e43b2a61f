"""A picture of who holds what: clients across, classes up, the area of a dot is the number of examples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

SHOWN = 100
LEFT, TOP, BOTTOM, RIGHT = 64, 56, 56, 130
LEGEND = 110
INK, FAINT, DOT = "#333333", "#e6e6e6", "#2a6f97"


def picture(counts: Tensor, path: Path | None = None, of_clients: int | None = None) -> str:
    """Draw a (clients, classes) table of counts as a standalone SVG, and write it to `path` if there is one.

    `of_clients` is how many clients there are, if the table has only the first of them.

    >>> import torch
    >>> picture(torch.tensor([[3, 0], [1, 2]])).count("<circle class='held'")
    3
    """
    clients, classes = of_clients or len(counts), counts.shape[1]
    shown = counts[:SHOWN]
    cell = cell_size(max(shown.shape))
    width = cell * len(shown)
    whole = LEFT + width + RIGHT, TOP + max(cell * classes + BOTTOM, LEGEND)
    most = max(int(shown.max()), 1) if shown.numel() else 1
    about = f"{clients} clients, {classes} classes"
    if clients > len(shown):
        about = f"The first {len(shown)} of {about}"
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{whole[0]}' height='{whole[1]}' "
        f"font-family='sans-serif' font-size='12' fill='{INK}' role='img'>",
        f"<title>Who holds what: {about}</title>",
        "<rect width='100%' height='100%' fill='white'/>",
        text(LEFT, 22, "Who holds what", "start", "font-size='15' font-weight='bold'"),
        text(LEFT, 40, about, "start"),
        f"<g transform='translate({LEFT},{TOP})'>",
        *axes(len(shown), classes, cell),
        *dots(shown, cell, most),
        *legend(width + 24, cell, most),
        "</g>",
        "</svg>",
    ]
    drawn = "\n".join(lines) + "\n"
    if path is not None:
        path.write_text(drawn, encoding="utf-8")
    return drawn


def cell_size(longest: int) -> int:
    """Pixels per client and class: roomy for a few, small for many."""
    return max(8, min(28, 900 // max(longest, 1)))


def radius(count: int, most: int, cell: int) -> float:
    """A dot's area is in proportion to its count; the largest fills its cell."""
    return max(0.48 * cell * math.sqrt(count / most), 0.4)


def axes(clients: int, classes: int, cell: int) -> Iterator[str]:
    """Grid lines, ticks and names of the two axes."""
    width, height = cell * clients, cell * classes
    for client in range(clients):
        x = cell * (client + 0.5)
        yield f"<line x1='{x}' y1='0' x2='{x}' y2='{height}' stroke='{FAINT}'/>"
        if client % step(cell, 28) == 0:
            yield text(x, height + 16, str(client), "middle")
    for label in range(classes):
        y = height - cell * (label + 0.5)
        yield f"<line x1='0' y1='{y}' x2='{width}' y2='{y}' stroke='{FAINT}'/>"
        if label % step(cell, 16) == 0:
            yield text(-8, y + 4, str(label), "end")
    yield f"<rect width='{width}' height='{height}' fill='none' stroke='{INK}'/>"
    yield text(width / 2, height + 38, "client", "middle")
    yield text(0, 0, "class", "middle", f"transform='translate(-42,{height / 2}) rotate(-90)'")


def step(cell: int, room: int) -> int:
    """From one labelled tick to the next, so that each label has `room` pixels."""
    return next(every for every in (1, 2, 5, 10) if every * cell >= room)


def dots(counts: Tensor, cell: int, most: int) -> Iterator[str]:
    """One dot for every class that a client holds any of."""
    classes = counts.shape[1]
    for client, row in enumerate(counts.tolist()):
        for label, count in enumerate(row):
            if count > 0:
                x, y = cell * (client + 0.5), cell * (classes - label - 0.5)
                yield (
                    f"<circle class='held' cx='{x}' cy='{y}' r='{radius(count, most, cell):.2f}' fill='{DOT}'>"
                    f"<title>client {client}, class {label}: {count}</title></circle>"
                )


def legend(x: float, cell: int, most: int) -> Iterator[str]:
    """What dots of three sizes stand for."""
    yield text(x, 12, "examples", "start", "font-weight='bold'")
    for place, count in enumerate(sorted({most, max(most // 4, 1), max(most // 20, 1)}, reverse=True)):
        y = 34 + place * max(cell, 20)
        yield f"<circle cx='{x + cell / 2}' cy='{y}' r='{radius(count, most, cell):.2f}' fill='{DOT}'/>"
        yield text(x + cell + 8, y + 4, f"{count:,}", "start")


def text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    """A piece of text."""
    return f"<text x='{x}' y='{y}' text-anchor='{anchor}' {more}>{words}</text>"
