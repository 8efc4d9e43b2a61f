"""Panels on one page: heatmaps, histograms and lines as a standalone SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from textwrap import wrap

import torch
from torch import Tensor

from potluck.core.panels import Heatmap, Histogram, Lines, Panel
from potluck.report.axes import Axis, axis, drawable, named, short
from potluck.report.colours import SHADES, ramp, shade
from potluck.report.holdings_picture import DOT, FAINT, INK, text
from potluck.report.inspection import spread

COLUMNS = 4
CELL = (410, 310)  # of one panel, its margins included
LEFT, TOP = 66, 44  # before a plot
WIDTH, HEIGHT = 210, 214
BESIDE = WIDTH + 12  # where legend and colour scale begin
BROAD = 310  # the width of a plot that has nothing beside it
HEADER = 50
FEWEST_BINS, MOST_BINS = 8, 40
NAMED = 16  # lines in a legend


def page(title: str, panels: Sequence[Panel]) -> str:
    """All panels, row by row, as a standalone SVG.

    >>> page("a run", [Histogram("values", torch.tensor([1.0, 2.0, 2.0]))]).count("<g class='panel'")
    1
    """
    columns = max(1, min(COLUMNS, math.ceil(math.sqrt(len(panels)))))
    width, height = CELL[0] * columns, HEADER + CELL[1] * math.ceil(len(panels) / columns)
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}' "
        f"font-family='sans-serif' font-size='11' fill='{INK}' role='img'>",
        f"<title>{safe(title)}</title>",
        "<rect width='100%' height='100%' fill='white'/>",
        label(16, 28, title, "start", "font-size='16' font-weight='bold'"),
    ]
    for place, panel in enumerate(panels):
        x, y = CELL[0] * (place % columns), HEADER + CELL[1] * (place // columns)
        lines += [f"<g class='panel' transform='translate({x},{y})'>", *heading(panel.title)]
        lines += [f"<g transform='translate({LEFT},{TOP})'>", *drawn(panel), "</g>", "</g>"]
    return "\n".join([*lines, "</svg>"]) + "\n"


def drawn(panel: Panel) -> Iterable[str]:
    """A panel's plot; the origin is its upper left corner."""
    if isinstance(panel, Heatmap):
        return heatmap(panel)
    return histogram(panel) if isinstance(panel, Histogram) else plot(panel)


def heading(title: str) -> Iterator[str]:
    """A title in at most two lines, in full when pointed at."""
    for place, line in enumerate(wrap(title, 52, max_lines=2, placeholder=" …")):
        yield label(16, 18 + 14 * place, line, "start", "font-size='12' font-weight='bold'")
    yield f"<title>{safe(title)}</title>"


# ---- axes ----


def frame(across: Axis, up: Axis, x_name: str, y_name: str) -> Iterator[str]:
    """The border of a plot with ticks and names."""
    for value, name in named(across.ticks()):
        x = across.at(value)
        yield f"<line x1='{x:.1f}' y1='{HEIGHT}' x2='{x:.1f}' y2='{HEIGHT + 4}' stroke='{INK}'/>"
        yield label(x, HEIGHT + 16, name, "middle")
    for value, name in named(up.ticks()):
        y = HEIGHT - up.at(value)
        yield f"<line x1='0' y1='{y:.1f}' x2='{across.length}' y2='{y:.1f}' stroke='{FAINT}'/>"
        yield label(-6, y + 4, name, "end")
    yield f"<rect width='{across.length}' height='{HEIGHT}' fill='none' stroke='{INK}'/>"
    yield label(across.length / 2, HEIGHT + 34, x_name, "middle")
    yield label(0, 0, y_name, "middle", f"transform='translate({14 - LEFT},{HEIGHT / 2}) rotate(-90)'")


# ---- the three kinds ----


def plot(panel: Lines) -> Iterator[str]:
    """Lines from the first to the last, in colours that run on like the layers do."""
    across = replace(axis(panel.x, WIDTH, room=0.02), whole=all(float(x).is_integer() for x in panel.x))
    up = axis((y for line in panel.series.values() for y in line), HEIGHT, panel.logarithmic, room=0.04)
    yield from frame(across, up, panel.x_name, panel.y_name)
    colours = dict(zip(panel.series, ramp(len(panel.series)), strict=True))
    for name, line in panel.series.items():
        points = [
            f"{across.at(x):.1f} {HEIGHT - up.at(y):.1f}" if drawable(y, panel.logarithmic) else ""
            for x, y in zip(panel.x, line, strict=True)
        ]
        yield (
            f"<path class='line' d='{pen(points)}' fill='none' stroke='{colours[name]}' stroke-width='1.8' "
            f"stroke-linejoin='round'><title>{safe(name)}</title></path>"
        )
    yield from legend(colours)


def pen(points: Sequence[str]) -> str:
    """A path through points, lifted where one is missing; a point without neighbours is a small cross."""
    path = ""
    for before, point, after in zip(["", *points], points, [*points[1:], ""], strict=False):
        if point and not before and not after:
            path += f"M{point}m-3 0h6m-3 -3v6"
        elif point:
            path += f"{'L' if before else 'M'}{point}"
    return path


def legend(colours: dict[str, str]) -> Iterator[str]:
    """Which line is whose; of very many, some, since the colours between are in order."""
    names = list(colours)
    shown = [names[place] for place in spread(len(names), NAMED)]
    for place, name in enumerate(shown):
        y = 8 + 13 * place
        yield f"<line x1='{BESIDE}' y1='{y}' x2='{BESIDE + 12}' y2='{y}' stroke='{colours[name]}' stroke-width='3'/>"
        written = name if len(name) <= 19 else f"…{name[-18:]}"
        yield label(BESIDE + 17, y + 4, written, "start", "font-size='10'")
    if len(shown) < len(names):
        yield label(BESIDE, HEIGHT + 34, f"({len(shown)} of {len(names)} named)", "start", "font-size='10'")


def histogram(panel: Histogram) -> Iterator[str]:
    """Bars of equal width."""
    values = panel.values.detach().double()
    kept = values[values.isfinite()]
    left_out = f" ({len(values) - len(kept):,} more not finite)" if len(kept) < len(values) else ""
    across = axis((float(kept.min()), float(kept.max())) if len(kept) else (), BROAD)
    bins = min(max(math.isqrt(len(kept)), FEWEST_BINS), MOST_BINS)
    counts = torch.histc(kept, bins, across.low, across.high).long().tolist()
    up = Axis(0.0, 1.05 * max(counts) or 1.0, HEIGHT, whole=True)
    yield from frame(across, up, f"{len(kept):,} values{left_out}", "count")
    for place, count in enumerate(counts):
        if count:
            x, broad, high = BROAD * place / bins, BROAD / bins - 0.5, up.at(count)
            yield (
                f"<rect class='bar' x='{x:.2f}' y='{HEIGHT - high:.2f}' width='{broad:.2f}' height='{high:.2f}' "
                f"fill='{DOT}'><title>{count:,}</title></rect>"
            )


def heatmap(panel: Heatmap) -> Iterator[str]:
    """Entries as coloured cells, the first row on top; white is 0."""
    values = panel.values.detach().double()
    rows, columns = values.shape
    finite = values[values.isfinite()]
    limit = (float(finite.abs().max()) if len(finite) else 0.0) or 1.0
    side = min(WIDTH / max(columns, 1), HEIGHT / max(rows, 1))
    yield f"<g transform='scale({side:.4f})' shape-rendering='crispEdges'>"
    for colour, path in cells(values, limit).items():
        yield f"<path class='cells' fill='{colour}' d='{path}'/>"
    yield "</g>"
    yield f"<rect width='{side * columns:.1f}' height='{side * rows:.1f}' fill='none' stroke='{INK}'/>"
    for at in sorted({0, columns - 1}):
        yield label(side * (at + 0.5), side * rows + 16, str(at + 1), "middle")
    for at in sorted({0, rows - 1}):
        yield label(-6, side * (at + 0.5) + 4, str(at + 1), "end")
    yield from colour_scale(limit)


def cells(values: Tensor, limit: float) -> dict[str, str]:
    """For every colour the outline of the cells that have it; neighbours in a row are one piece."""
    beyond = SHADES + 1  # what is not finite has a colour of its own
    shades = (values / limit * SHADES).nan_to_num(beyond, beyond, beyond).round().long().tolist()
    paths: dict[str, list[str]] = {}
    for y, row in enumerate(shades):
        start = 0
        for x in range(1, len(row) + 1):
            if x == len(row) or row[x] != row[start]:
                paths.setdefault(shade(row[start]), []).append(f"M{start} {y}h{x - start}v1h{start - x}z")
                start = x
    return {colour: "".join(pieces) for colour, pieces in paths.items()}


def colour_scale(limit: float) -> Iterator[str]:
    """A bar of all colours with the numbers they stand for."""
    step = HEIGHT / (2 * SHADES + 1)
    for place, number in enumerate(range(SHADES, -SHADES - 1, -1)):
        y = step * place
        yield f"<rect x='{BESIDE}' y='{y:.2f}' width='12' height='{step + 0.5:.2f}' fill='{shade(number)}'/>"
    yield f"<rect x='{BESIDE}' width='12' height='{HEIGHT}' fill='none' stroke='{INK}'/>"
    for place, value in enumerate((limit, limit / 2, 0.0, -limit / 2, -limit)):
        yield label(BESIDE + 18, HEIGHT * place / 4 + 4, short(value), "start")


# ---- words ----


def safe(words: str) -> str:
    """Words as XML takes them."""
    return escape("".join(letter if letter.isprintable() else "\ufffd" for letter in words))


def label(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    """A piece of text whose words may be anything."""
    return text(round(x, 1), round(y, 1), safe(words), anchor, more)
