"""The number for skew, the table it comes from and the picture of it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.data import Holdings
from potluck.core.errors import DataError
from potluck.core.random import stream
from potluck.data.partitions import IID
from potluck.data.skew import skew, table
from potluck.report.holdings_picture import picture

TARGETS = torch.tensor([0, 0, 0, 1, 1, 2])
HOLDINGS = Holdings.of_lists([torch.tensor([0, 3]), torch.tensor([5, 4, 1]), torch.tensor([2])])


def test_table() -> None:
    assert table(TARGETS, HOLDINGS, classes=4).tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]]


def test_a_label_outside_the_range() -> None:
    with pytest.raises(DataError, match="labels go from 0 to 2, but with 2 classes they are 0 to 1"):
        table(TARGETS, HOLDINGS, classes=2)


def test_skew_by_hand() -> None:
    """All together (1/2, 1/3, 1/6). Distances 1/6, 1/6, 1/2, weighted 2/6, 3/6, 1/6: 1/18 + 1/12 + 1/12."""
    assert skew(TARGETS, HOLDINGS, classes=3) == pytest.approx(1 / 18 + 1 / 12 + 1 / 12)


def test_examples_that_nobody_holds_do_not_count() -> None:
    some = Holdings.of_lists([torch.tensor([0, 3]), torch.tensor([1, 4])])
    assert skew(TARGETS, some, classes=3) == pytest.approx(0, abs=1e-12)


def test_the_ends_of_the_range() -> None:
    targets = torch.arange(100) % 10
    alike = Holdings(torch.arange(100), torch.arange(0, 101, 10))
    apart = Holdings(targets.argsort(stable=True), torch.arange(0, 101, 10))
    assert skew(targets, alike, classes=10) == pytest.approx(0, abs=1e-12)
    assert skew(targets, apart, classes=10) == pytest.approx(0.9)


@given(st.lists(st.integers(0, 4), min_size=4, max_size=60), st.integers(1, 4), st.integers(0, 99))
def test_skew_is_in_its_range(labels: list[int], clients: int, seed: int) -> None:
    targets = torch.tensor(labels)
    share = targets.bincount() / len(targets)
    value = skew(targets, IID()(targets, clients, stream(seed)), classes=5)
    assert 0 <= value <= 1 - float(share.square().sum()) + 1e-6


def circles(svg: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg)
    return [one for one in root.iter("{http://www.w3.org/2000/svg}circle") if one.get("class") == "held"]


def test_picture_has_one_dot_per_class_held_and_areas_in_proportion() -> None:
    dots = circles(picture(torch.tensor([[400, 0], [100, 25]])))
    assert [re.sub(r"\s+", " ", "".join(dot.itertext())) for dot in dots] == [
        "client 0, class 0: 400",
        "client 1, class 0: 100",
        "client 1, class 1: 25",
    ]
    radii = [float(str(dot.get("r"))) for dot in dots]
    assert radii[0] / radii[1] == pytest.approx(2, rel=0.01)
    assert radii[1] / radii[2] == pytest.approx(2, rel=0.01)
    assert dots[0].get("cy") == dots[1].get("cy")
    assert float(str(dots[2].get("cy"))) < float(str(dots[1].get("cy")))  # class 1 is drawn above class 0
    assert float(str(dots[1].get("cx"))) > float(str(dots[0].get("cx")))


def test_picture_says_what_it_leaves_out(tmp_path: Path) -> None:
    file = tmp_path / "who.svg"
    drawn = picture(torch.ones(1000, 3, dtype=torch.long), file)
    assert file.read_text(encoding="utf-8") == drawn
    assert "The first 100 of 1000 clients, 3 classes" in drawn
    assert len(circles(drawn)) == 300


def test_picture_of_nothing_is_still_a_picture() -> None:
    assert circles(picture(torch.zeros(3, 2, dtype=torch.long))) == []


def test_legend_names_the_largest_count() -> None:
    drawn = picture(torch.tensor([[4000, 3], [1, 2]]))
    assert all(f">{words}</text>" in drawn for words in ("4,000", "1,000", "200", "client", "class", "examples"))
