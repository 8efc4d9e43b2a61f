"""Panels on a page: every value is where it should be, whatever the values and the words are."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from potluck.core.panels import Heatmap, Histogram, Lines
from potluck.report.axes import Axis, axis, round_numbers, short
from potluck.report.axes import named as tick_names
from potluck.report.colours import MISSING, ramp, shade
from potluck.report.pictures import HEIGHT, WIDTH, cells, page, pen

SVG = "{http://www.w3.org/2000/svg}"
NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=64).filter(lambda x: not 1e100 < abs(x) < math.inf)
WORDS = st.text(max_size=30)


def drawing(*panels: Heatmap | Histogram | Lines, title: str = "a run") -> ElementTree.Element:
    return ElementTree.fromstring(page(title, panels))


def of_class(root: ElementTree.Element, tag: str, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter(f"{SVG}{tag}") if element.get("class") == name]


def words(root: ElementTree.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


@given(st.lists(NUMBERS, max_size=20), WORDS)
def test_any_values_and_words_make_a_page_that_can_be_read(values: list[float], name: str) -> None:
    shown = torch.tensor(values, dtype=torch.float64)
    along = tuple(float(round) for round in range(len(values)))
    root = drawing(
        Histogram(name, shown),
        Heatmap(name, shown[None]),
        Lines(name, along, {name: tuple(values)}, name, name),
        Lines(name, along, {name: tuple(values)}, name, name, logarithmic=True),
        title=name,
    )
    assert len(of_class(root, "g", "panel")) == 4
    assert not [word for word in words(root) if word in ("nan", "inf", "-inf")] or name in ("nan", "inf", "-inf")
    assert not re.search(r"='[^']*(nan|inf)", page("", [Lines("", along, {"": tuple(values)}, "", "")]))


def test_words_are_escaped() -> None:
    name = """<b a='1'>&"x"</b>"""
    text = page(name, [Lines(name, (1.0, 2.0), {name: (1.0, 2.0)}, name, name)])
    assert "<b" not in text
    assert name in words(ElementTree.fromstring(text))


def test_panels_are_in_rows_and_apart() -> None:
    root = drawing(*[Histogram(f"panel {place}", torch.ones(1)) for place in range(10)])
    places = [element.get("transform") for element in of_class(root, "g", "panel")]
    assert len(set(places)) == 10
    assert [place.split(",")[1] for place in places if place] == [*["50)"] * 4, *["360)"] * 4, *["670)"] * 2]
    assert int(root.get("height", "0")) == 50 + 3 * 310


def test_a_histogram_counts() -> None:
    root = drawing(Histogram("h", torch.tensor([0.0, 0.0, 0.0, 8.0, math.nan])))
    bars = of_class(root, "rect", "bar")
    assert ["".join(bar.itertext()) for bar in bars] == ["3", "1"]
    heights = [float(bar.get("height", "0")) for bar in bars]
    assert heights[0] == pytest.approx(3 * heights[1], abs=0.02)
    assert float(bars[0].get("x", "-1")) == 0
    assert "4 values (1 more not finite)" in words(root)


def test_a_heatmap_has_its_entries_in_the_scales_colours() -> None:
    values = torch.tensor([[2.0, -2.0], [1.0, 0.0]])
    assert cells(values.double(), 2.0) == {
        shade(32): "M0 0h1v1h-1z",
        shade(-32): "M1 0h1v1h-1z",
        shade(16): "M0 1h1v1h-1z",
        "#ffffff": "M1 1h1v1h-1z",
    }
    root = drawing(Heatmap("m", values))
    assert [word for word in words(root) if word in ("2", "1", "0", "-1", "-2")][-5:] == ["2", "1", "0", "-1", "-2"]
    colours = {element.get("fill") for element in root.iter(f"{SVG}rect")}
    assert {element.get("fill") for element in of_class(root, "path", "cells")} <= colours


def test_neighbours_of_one_colour_are_one_piece() -> None:
    assert cells(torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64), 1.0) == {
        "#ffffff": "M0 0h2v1h-2z",
        shade(32): "M2 0h1v1h-1z",
    }


def test_what_is_not_finite_has_a_colour_of_its_own() -> None:
    found = cells(torch.tensor([[math.nan, math.inf, -math.inf, 1.0]], dtype=torch.float64), 1.0)
    assert found == {MISSING: "M0 0h3v1h-3z", shade(32): "M3 0h1v1h-1z"}


@pytest.mark.parametrize("logarithmic", [False, True])
def test_lines_go_through_their_points(logarithmic: bool) -> None:
    root = drawing(Lines("l", (1.0, 2.0, 3.0), {"a": (1.0, 10.0, 100.0)}, "round", "y", logarithmic))
    (line,) = of_class(root, "path", "line")
    points = [tuple(map(float, point.split())) for point in re.split("[ML]", line.get("d", ""))[1:]]
    across = [(x - points[0][0]) / (points[2][0] - points[0][0]) for x, _ in points]
    up = [(y - points[0][1]) / (points[2][1] - points[0][1]) for _, y in points]
    assert across == pytest.approx([0, 0.5, 1], abs=1e-3)
    assert up == pytest.approx([0, 0.5, 1] if logarithmic else [0, 9 / 99, 1], abs=1e-3)
    assert points[0][1] > points[2][1]  # larger is higher
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)


def test_a_gap_is_left_open_and_a_lonely_point_is_seen() -> None:
    assert pen(["1 1", "2 2", "", "4 4", "5 5"]) == "M1 1L2 2M4 4L5 5"
    assert pen(["1 1", "", "3 3", "4 4"]) == "M1 1m-3 0h6m-3 -3v6M3 3L4 4"


def test_a_legend_names_all_lines_or_says_that_it_does_not() -> None:
    for count in (1, 16, 40):
        series = {f"layer{place}.conv": (0.0, float(place)) for place in range(count)}
        told = words(drawing(Lines("l", (1.0, 2.0), series, "round", "y")))
        named = [name for name in series if name in told]
        assert len(named) == min(count, 16)
        assert (named[0], named[-1]) == ("layer0.conv", f"layer{count - 1}.conv")
        assert ("(16 of 40 named)" in told) == (count == 40)
    assert "…ention.self.output" in words(
        drawing(Lines("l", (1.0,), {"encoder.layers.3.attention.self.output": (1.0,)}, "x", "y"))
    )


def test_lines_have_colours_of_their_own() -> None:
    assert len(set(ramp(60))) == 60
    assert ramp(0) == []


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_are_few_round_and_inside(low: float, span: float) -> None:
    high = low + span
    assume(span > 1e-9 * abs(low))
    ticks = round_numbers(low, high)
    assert 2 <= len(ticks) <= 7
    assert all(low - 1e-6 * span <= tick <= high + 1e-6 * span for tick in ticks)
    step = ticks[1] - ticks[0]
    assert f"{step:.0e}"[0] in "125"


def test_ticks_can_be_told_apart() -> None:
    named = [name for _, name in tick_names(axis((12.31, 12.33), 100).ticks())]
    assert named == ["12.31", "12.315", "12.32", "12.325", "12.33"]
    named = [name for _, name in tick_names(axis((0.0, 1.0), 100).ticks())]
    assert named == ["0", "0.2", "0.4", "0.6", "0.8", "1"]


def test_rounds_are_whole() -> None:
    told = words(drawing(Lines("l", (1.0, 2.0, 3.0), {"a": (0.0, 0.1, 0.2)}, "round", "y")))
    assert [word for word in told if word in ("1", "1.5", "2", "2.5", "3")] == ["1", "2", "3"]


def test_decades_are_the_ticks_of_a_logarithmic_axis() -> None:
    found = axis((0.0, 2e-3, 5.0, math.inf), 300, logarithmic=True)
    assert found.ticks() == pytest.approx([1e-3, 1e-2, 1e-1, 1, 10])
    assert found.at(1e-3) == pytest.approx(0)
    assert found.at(0.1) == pytest.approx(150)
    assert len(Axis(1e-30, 1e30, 100, logarithmic=True).ticks()) <= 7


def test_ticks_of_nearly_equal_values_leave_room_for_the_axis_name() -> None:
    found = axis((3.203041, 3.203073), 100)
    assert found.at(3.203057) == pytest.approx(50, abs=0.1)
    assert max(len(name) for _, name in tick_names(found.ticks())) <= 6


@pytest.mark.parametrize("value", [0.0, 5.0, -3.0, 1e-280, 5e-324])
def test_a_value_alone_is_in_the_middle(value: float) -> None:
    assert axis((value, value), 100).at(value) == pytest.approx(50)


@pytest.mark.parametrize(
    ("value", "written"), [(0.25, "0.25"), (1500.0, "1500"), (0.00003, "3e-5"), (2e12, "2e12"), (0.0, "0")]
)
def test_numbers_are_written_as_people_do(value: float, written: str) -> None:
    assert short(value) == written
