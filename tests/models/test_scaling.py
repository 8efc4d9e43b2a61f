from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import ModelError
from potluck.models.scaling import ceil_widths, round_widths

WIDTHS = (64, 128, 256, 512)


def test_heterofl_rounds_up() -> None:
    assert ceil_widths(0.35, WIDTHS) == [23, 45, 90, 180]
    assert ceil_widths(1 / 16, (10, 16)) == [1, 1]


def test_floating_point_noise_adds_no_channel() -> None:
    assert math.ceil(0.07 * 100) == 8
    assert ceil_widths(0.07, [100]) == [7]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (0.64, [41, 82, 164, 328]),
        (0.5, [32, 64, 128, 256]),
        (0.4, [26, 51, 102, 205]),
        (0.35, [22, 45, 90, 179]),
        (0.001, [1, 1, 1, 1]),
    ],
)
def test_fedhm_rounds_to_the_nearest(width: float, expected: list[int]) -> None:
    assert round_widths(width, WIDTHS) == expected


@given(st.floats(min_value=0, max_value=1, exclude_min=True), st.integers(min_value=1, max_value=4096))
def test_a_narrow_layer_fits_into_the_wide_one_and_is_never_empty(width: float, full: int) -> None:
    for rule in (ceil_widths, round_widths):
        (narrow,) = rule(width, [full])
        assert 1 <= narrow <= full


@given(st.integers(min_value=1, max_value=4096))
def test_full_width_is_full_width(full: int) -> None:
    assert ceil_widths(1.0, [full]) == round_widths(1.0, [full]) == [full]


@pytest.mark.parametrize("width", [0, -0.5, math.nan, math.inf])
def test_a_width_that_leaves_no_network_is_refused(width: float) -> None:
    for rule in (ceil_widths, round_widths):
        with pytest.raises(ModelError, match=f"width is {width}, but it must be a number above 0"):
            rule(width, WIDTHS)
