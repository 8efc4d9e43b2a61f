from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import ModelError
from potluck.models.scaling import RULES, widths
from potluck.study.networks import model_factory

WIDTHS = (64, 128, 256, 512)


def test_heterofl_rounds_up() -> None:
    assert widths(0.35, WIDTHS, "ceil") == [23, 45, 90, 180]
    assert widths(1 / 16, (10, 16), "ceil") == [1, 1]


def test_floating_point_noise_adds_no_channel() -> None:
    assert math.ceil(0.07 * 100) == 8
    assert widths(0.07, [100], "ceil") == [7]


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
    assert widths(width, WIDTHS, "round") == expected


def test_halves_go_to_the_even_number() -> None:
    assert widths(0.5, (3, 5, 7), "round") == [2, 2, 4]


@given(
    st.floats(min_value=0, max_value=1, exclude_min=True),
    st.integers(min_value=1, max_value=4096),
    st.sampled_from(list(RULES)),
)
def test_a_narrow_layer_fits_into_the_wide_one_and_is_never_empty(width: float, full: int, rounding) -> None:
    (narrow,) = widths(width, [full], rounding)
    assert 1 <= narrow <= full


@given(st.integers(min_value=1, max_value=4096), st.sampled_from(list(RULES)))
def test_full_width_is_full_width(full: int, rounding) -> None:
    assert widths(1.0, [full], rounding) == [full]


@pytest.mark.parametrize("rounding", RULES)
@pytest.mark.parametrize("width", [0, -0.5, math.nan, math.inf])
def test_a_width_that_leaves_no_network_is_refused(width: float, rounding) -> None:
    with pytest.raises(ModelError, match=f"width is {width}, but it must be a number above 0"):
        widths(width, WIDTHS, rounding)


def test_an_unknown_rounding_is_refused() -> None:
    with pytest.raises(ModelError, match="rounding is 'floor', but it should be one of ceil, round"):
        widths(0.5, WIDTHS, "floor")


@pytest.mark.parametrize(("rounding", "stem"), [("ceil", 23), ("round", 22)])
def test_a_config_chooses_the_rounding(rounding: str, stem: int) -> None:
    net = model_factory("resnet18", {"rounding": rounding}, (torch.zeros(1, 3, 8, 8),), 10)(0.35)
    assert net.stem[0].out_channels == stem
