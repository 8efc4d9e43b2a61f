"""Effective ranks and the constants of FedHM's theorem, by hand and against the definitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from potluck.parts.lowrank.spectrum import effective_rank, kappa_sigma1, kappa_sigma2

VALUES = st.lists(st.floats(0, 5), min_size=1, max_size=8).map(lambda found: sorted(found, reverse=True))
RANKS = st.lists(st.integers(1, 8), min_size=1, max_size=5)


def energy(values: Tensor) -> float:
    return values.double().square().sum().item()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_equal_values_all_count(count: int) -> None:
    assert effective_rank(torch.full((count,), 0.3), count * 0.3**2, count) == pytest.approx(count)


def test_one_value_and_none() -> None:
    assert effective_rank(torch.tensor([2.0, 0.0, 0.0]), 4.0, 3) == 1.0
    assert effective_rank(torch.tensor([2.0]), 4.0, 9) == 1.0
    assert effective_rank(torch.zeros(3), 0.0, 3) == 0.0
    assert effective_rank(torch.zeros(2), 0.0, 5) == 0.0


def test_shares_of_three_quarters_and_one() -> None:
    """σ² = 3, 1: p = 3/4, 1/4; exp(H) = (4/3)^(3/4) · 4^(1/4)."""
    expected = (4 / 3) ** 0.75 * 4**0.25
    assert effective_rank(torch.tensor([math.sqrt(3), 1.0]), 4.0, 2) == pytest.approx(expected)


def test_unknown_energy_is_spread_evenly() -> None:
    """σ² = 4 of 8, four values unknown: p = 1/2 and four times 1/8; exp(H) = √2 · √8 = 4."""
    assert effective_rank(torch.tensor([2.0]), 8.0, 5) == pytest.approx(4.0)


def test_energy_a_rounding_error_below_that_of_the_values() -> None:
    assert effective_rank(torch.tensor([1.0, 1.0]), 2 - 1e-7, 4) == pytest.approx(2.0)


@given(VALUES, st.data())
def test_knowing_fewer_values_gives_an_upper_bound(found: list[float], data: st.DataObject) -> None:
    values = torch.tensor(found, dtype=torch.float64)
    known = data.draw(st.integers(0, len(values)))
    exact = effective_rank(values, energy(values), len(values))
    assert effective_rank(values[:known], energy(values), len(values)) >= exact - 1e-6
    assert exact <= len(values) + 1e-9


def test_kappa_sigma1_by_hand() -> None:
    """σ = 4, 1; ranks 1 and 2: the mean of roots is (2, 1/2), squared (4, 1/4), minus (4, 1) is (0, -3/4)."""
    assert kappa_sigma1(torch.tensor([4.0, 1.0]), [1, 2]) == pytest.approx(9 / 16)
    assert kappa_sigma1(torch.tensor([4.0, 1.0]), [2, 2]) == 0
    assert kappa_sigma1(torch.tensor([4.0, 1.0]), [1]) == 1


def test_kappa_sigma1_beyond_what_is_known() -> None:
    """σ = 4, 1, 1 of which one is known, energy 2 beyond: nobody, half, or all hold it."""
    known = torch.tensor([4.0])
    assert kappa_sigma1(known, [1, 1], lost=2.0) == 2.0
    assert kappa_sigma1(known, [1, 3], lost=2.0) == pytest.approx(2 * (9 / 16))
    assert kappa_sigma1(known, [3, 3], lost=2.0) == 0


def test_kappa_sigma2_by_hand() -> None:
    """σ = 4, 1; ranks 1, 2, 2: the mean of roots is (2, 2/3); from (2, 0) that is 4/9, from (2, 1) only 1/9."""
    assert kappa_sigma2(torch.tensor([4.0, 1.0]), [1, 2, 2]) == pytest.approx(4 / 9)
    assert kappa_sigma2(torch.tensor([4.0, 1.0]), [1, 1, 2]) == pytest.approx(4 / 9)
    assert kappa_sigma2(torch.tensor([9.0, 4.0]), [1, 2]) == pytest.approx(1.0)
    assert kappa_sigma2(torch.tensor([4.0, 1.0]), [2]) == 0


def roots(values: Tensor, rank: int) -> Tensor:
    """√Σ_r, written out."""
    kept = values.clone()
    kept[rank:] = 0
    return torch.diag(kept.sqrt())


@given(VALUES, RANKS, st.data())
def test_kappas_are_what_the_paper_writes(found: list[float], ranks: list[int], data: st.DataObject) -> None:
    values = torch.tensor(found, dtype=torch.float64)
    each = [roots(values, rank) for rank in ranks]
    mean = torch.stack(each).mean(0)
    first = (mean @ mean - torch.diag(values)).square().sum().item()
    assert kappa_sigma1(values, ranks) == pytest.approx(first, abs=1e-12)
    second = max((mean - own).square().sum().item() for own in each)
    assert kappa_sigma2(values, ranks) == pytest.approx(second, abs=1e-12)
    full = len(values)
    known = data.draw(st.integers(max([rank for rank in ranks if rank < full], default=0), full))
    assert kappa_sigma1(values[:known], ranks, energy(values[known:])) == pytest.approx(first, abs=1e-12)
