"""Ranks for a budget: against all combinations on small cases, against exact tables and FedHM's rule on ResNets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from potluck.core.errors import ModelError
from potluck.parts.lowrank.allocate import Allocation, Options, Steps, allocate, uniform
from potluck.parts.lowrank.layers import Unrolled
from potluck.parts.lowrank.prices import Price, PriceList

Spectra = dict[str, Tensor]


def spectrum(*squares: float) -> Tensor:
    return torch.tensor(squares, dtype=torch.float64)


def lost_at(spectrum: Tensor, rank: int | None) -> float:
    return 0.0 if rank is None else float(spectrum[..., rank:].sum())


def choices(spectra: Spectra, prices: PriceList, name: str) -> list[tuple[float, float]]:
    """(cost, lost) of every rank of a layer, and of the whole."""
    price, ranks = prices.layers[name], range(1, spectra[name].shape[-1] + 1)
    return [*((price.at(rank), lost_at(spectra[name], rank)) for rank in ranks), (price.whole, 0.0)]


def optimum(spectra: Spectra, prices: PriceList, budget: float) -> float:
    """The least energy lost by any combination within the budget."""
    combinations = itertools.product(*(choices(spectra, prices, name) for name in prices.layers))
    return min(
        sum(lost for _, lost in combination)
        for combination in combinations
        if prices.fixed + sum(cost for cost, _ in combination) <= budget
    )


def largest_step(spectra: Spectra, prices: PriceList) -> float:
    """The most energy that lies between two neighbours on a layer's lower convex hull, found by its definition."""
    largest = 0.0
    for name in prices.layers:
        points = sorted(set(choices(spectra, prices, name)))
        place = points[0]
        while later := [point for point in points if point[0] > place[0] and point[1] < place[1]]:
            after = max(later, key=lambda to: (place[1] - to[1]) / (to[0] - place[0]))
            largest, place = max(largest, place[1] - after[1]), after
    return largest


def least(prices: PriceList) -> float:
    return prices.fixed + sum(min(price.whole, price.at(1)) for price in prices.layers.values())


@st.composite
def cases(draw: st.DrawFn) -> tuple[Spectra, PriceList]:
    """Up to four small layers; whole numbers, so that sums are exact. Some cost more in factors, some have groups."""
    spectra, layers = {}, {}
    for number in range(draw(st.integers(1, 4))):
        count, groups = draw(st.integers(1, 6)), draw(st.integers(1, 2))
        squares = st.lists(st.integers(0, 1000), min_size=count, max_size=count)
        rows = [sorted(draw(squares), reverse=True) for _ in range(groups)]
        spectra[f"layer{number}"] = torch.tensor(rows if groups > 1 else rows[0]).double()
        base, per_rank, whole = draw(st.integers(0, 5)), draw(st.integers(0, 20)), draw(st.integers(1, 80))
        layers[f"layer{number}"] = Price(whole, base, per_rank)
    return spectra, PriceList(draw(st.integers(0, 20)), layers)


def check(found: Allocation, spectra: Spectra, prices: PriceList) -> None:
    """Ranks that exist and pay, and what they are said to cost and lose."""
    assert list(found.ranks) == [name for name in prices.layers if name in found.ranks]
    assert found.first == next(iter(found.ranks), None)
    for name, rank in found.ranks.items():
        assert 1 <= rank <= spectra[name].shape[-1]
        assert prices.layers[name].at(rank) < prices.layers[name].whole
    assert found.cost == prices.cost(found.ranks)
    assert found.lost == sum(lost_at(spectra[name], found.ranks.get(name)) for name in prices.layers)
    assert found.energy == sum(float(spectra[name].sum()) for name in prices.layers)


@given(cases(), st.floats(0, 1))
def test_a_budget_is_kept_and_no_combination_is_better_by_more_than_a_step(
    case: tuple[Spectra, PriceList], share: float
) -> None:
    spectra, prices = case
    budget = least(prices) + share * (prices.total - least(prices))
    found = allocate(spectra, prices, budget)
    check(found, spectra, prices)
    assert found.cost <= budget
    best = optimum(spectra, prices, budget)
    assert best <= found.lost <= best + largest_step(spectra, prices)


@given(cases())
def test_a_larger_budget_never_loses_more(case: tuple[Spectra, PriceList]) -> None:
    spectra, prices = case
    budgets = range(math.ceil(least(prices)), math.ceil(prices.total) + 2)
    losses = [allocate(spectra, prices, budget).lost for budget in budgets]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] == 0


def test_most_small_cases_are_solved_exactly() -> None:
    rng, exact, worst = np.random.default_rng(0), 0, 0.0
    for _ in range(200):
        sizes = {f"layer{number}": rng.integers(2, 9, 2) for number in range(rng.integers(1, 5))}
        spectra = {
            name: torch.from_numpy(np.sort(rng.random(min(rows, columns)) ** rng.choice([1, 4]))[::-1].copy())
            for name, (rows, columns) in sizes.items()
        }
        layers = {
            name: Price(float(rows * columns), 0.0, float(rows + columns)) for name, (rows, columns) in sizes.items()
        }
        prices = PriceList(0.0, layers)
        budget = rng.uniform(least(prices), prices.total)
        found = allocate(spectra, prices, budget)
        gap = (found.lost - optimum(spectra, prices, budget)) / found.energy
        exact, worst = exact + (gap < 1e-9), max(worst, gap)
    assert exact >= 185
    assert worst < 0.15


def resnet_layers() -> dict[str, Unrolled]:
    """The 3x3 convolutions of a ResNet-18 behind the stem."""
    widths = (64, 64, 128, 256, 512)
    layers = {}
    for stage, (before, width) in enumerate(itertools.pairwise(widths), start=1):
        for number in range(4):
            layers[f"layer{stage}.{number // 2}.conv{number % 2 + 1}"] = Unrolled(
                width, before if number == 0 else width, 3, 3, 1, False
            )
    return layers


LAYERS = resnet_layers()
REST = 1_728 + 172_032 + 9_600 + 5_130  # stem, shortcuts, norms, head
PARAMETERS = PriceList(REST, {name: Price(u.size(), 0.0, u.size(1)) for name, u in LAYERS.items()})
UNIT = 192  # the price of every rank and layer of it is a multiple of this


def falling(seed: int, steepest: float = 3.0) -> Spectra:
    """Spectra that fall like powers, each layer's at its own pace and height."""
    rng = np.random.default_rng(seed)
    return {
        name: torch.from_numpy(
            rng.uniform(0.1, 10) * np.arange(1.0, min(u.rows, u.columns) + 1) ** -rng.uniform(0.2, steepest)
        )
        for name, u in LAYERS.items()
    }


def table(spectra: Spectra) -> np.ndarray:
    """The least energy lost for every budget in units, layer by layer."""
    size = int(PARAMETERS.total - PARAMETERS.fixed) // UNIT
    best = np.zeros(size + 1)
    for name in LAYERS:
        better = np.full(size + 1, np.inf)
        for cost, lost in choices(spectra, PARAMETERS, name):
            units = int(cost) // UNIT
            if cost <= PARAMETERS.layers[name].whole:
                np.minimum(better[units:], best[: size + 1 - units] + lost, out=better[units:])
        best = better
    return best


@pytest.mark.parametrize(("seed", "steepest"), [(0, 3.0), (1, 1.0), (2, 1.0)])
def test_a_resnet_loses_next_to_no_more_than_the_exact_optimum(seed: int, steepest: float) -> None:
    spectra = falling(seed, steepest)
    best, gaps = table(spectra), []
    for share in np.linspace(0.05, 0.99, 25):
        found = allocate(spectra, PARAMETERS, share * PARAMETERS.total)
        assert found.cost <= share * PARAMETERS.total
        least_lost = best[int(share * PARAMETERS.total - PARAMETERS.fixed) // UNIT]
        gaps.append((found.lost - least_lost) / found.energy)
    assert min(gaps) > -1e-12
    assert max(gaps) < 0.01
    assert np.mean(gaps) < 0.001


@given(st.integers(0, 10_000), st.sampled_from([0.5, 1.0, 3.0]), st.floats(0.02, 0.7))
def test_no_more_is_lost_than_with_equal_ratios_at_the_same_size(seed: int, steepest: float, gamma: float) -> None:
    spectra = falling(seed, steepest)
    even = uniform(spectra, LAYERS, PARAMETERS, gamma)
    found = allocate(spectra, PARAMETERS, even.cost)
    assert found.cost <= even.cost
    assert found.lost <= even.lost


def test_equal_ratios_are_the_papers_ranks_and_layers_not_named_stay_whole() -> None:
    spectra = falling(0)
    named = {name: layer for name, layer in LAYERS.items() if not name.startswith("layer1.0")}
    even = uniform(spectra, named, PARAMETERS, 0.5)
    assert even.ranks == {name: layer.outputs // 2 for name, layer in named.items()}
    assert even.first == "layer1.1.conv1"
    assert even.cost == 4_157_514  # FedHM's table has 4.16M
    assert even.lost == pytest.approx(sum(lost_at(spectra[name], rank) for name, rank in even.ranks.items()))
    assert even.energy == pytest.approx(sum(float(one.sum()) for one in spectra.values()))


def test_steps_are_taken_where_a_price_saves_most_and_ties_go_to_the_earlier_layer() -> None:
    spectra = {"a": spectrum(9, 4, 1), "b": spectrum(9, 4, 1), "c": spectrum(9, 9, 9)}
    prices = PriceList(1, {"a": Price(100, 0, 2), "b": Price(100, 0, 2), "c": Price(100, 0, 9)})
    found = [allocate(spectra, prices, budget).ranks for budget in (14, 15, 16, 18, 27, 29)]
    assert [tuple(ranks.values()) for ranks in found] == [
        (1, 1, 1),
        (1, 1, 1),
        (2, 1, 1),
        (2, 2, 1),
        (2, 2, 2),
        (3, 2, 2),
    ]


def test_the_earliest_of_many_equal_layers_get_what_is_not_enough_for_all() -> None:
    names = [f"layer{number}" for number in range(50)]
    prices = PriceList(0, dict.fromkeys(names, Price(100, 0, 2)))
    found = allocate(dict.fromkeys(names, spectrum(9, 4, 1)), prices, 2 * 50 + 2 * 20)
    assert list(found.ranks.values()) == [2] * 20 + [1] * 30


def test_no_step_comes_before_those_that_lead_to_it_however_sums_are_rounded() -> None:
    """Sums of tenths are rounded, so that the differences between them are not all alike."""
    options = Options.of(spectrum(*[0.1] * 60), Price(1000, 0, 1))
    assert Steps.along([options], [0], np.inf).places[:59].tolist() == [*range(1, 60)]


def test_a_layer_stays_whole_where_factors_do_not_pay() -> None:
    spectra = {"narrow": spectrum(5, 5), "wide": spectrum(9, 1, 1)}
    prices = PriceList(0, {"narrow": Price(4, 3, 1), "wide": Price(30, 0, 5)})
    assert allocate(spectra, prices, 9).ranks == {"wide": 1}
    assert allocate(spectra, prices, 33).ranks == {"wide": 3}


def test_a_layer_is_made_whole_if_that_is_worth_more_than_the_ranks_of_others() -> None:
    flat, steep = spectrum(*[6] * 6), spectrum(4, 3, 2, 1)
    prices = PriceList(0, {"flat": Price(12, 0, 4), "steep": Price(20, 0, 2)})
    found = allocate({"flat": flat, "steep": steep}, prices, 14)
    assert found.ranks == {"steep": 1}  # rank 2 of it would leave the flat one at rank 2
    assert found.lost == 6


def test_nothing_is_spent_on_ranks_that_save_nothing() -> None:
    prices = PriceList(0, {"a": Price(100, 0, 10)})
    assert allocate({"a": spectrum(3, 1, 0, 0)}, prices, 99).ranks == {"a": 2}


def test_ranks_that_cost_nothing_are_taken() -> None:
    prices = PriceList(0, {"a": Price(9, 5, 0), "b": Price(9, 0, 4)})
    assert allocate({"a": spectrum(3, 2, 1), "b": spectrum(1, 1, 1)}, prices, 9).ranks == {"a": 3, "b": 1}


def test_a_rank_of_a_grouped_layer_is_one_of_every_group() -> None:
    spectra = {"a": torch.tensor([[9.0, 1.0, 1.0], [5.0, 4.0, 0.0]])}
    found = allocate(spectra, PriceList(0, {"a": Price(100, 0, 10)}), 25)
    assert (found.ranks, found.lost, found.energy) == ({"a": 2}, 1, 20)


@pytest.mark.parametrize("more", [0, 1])
def test_nothing_is_put_into_factors_if_the_whole_network_is_allowed(more: float) -> None:
    found = allocate(falling(0), PARAMETERS, PARAMETERS.total + more)
    assert (found.ranks, found.cost, found.lost, found.first) == ({}, PARAMETERS.total, 0, None)
    lossless = {"a": spectrum(3, 1, 0, 0)}
    assert allocate(lossless, PriceList(0, {"a": Price(100, 0, 10)}), 100 + more).ranks == {}


def test_a_budget_below_rank_one_everywhere_is_refused_with_the_least_there_is() -> None:
    prices = PriceList(1_000_000, {"a": Price(3000, 0, 500), "b": Price(200, 0, 500)})
    spectra = {"a": spectrum(2, 1), "b": spectrum(2, 1)}
    assert allocate(spectra, prices, 1_000_700).ranks == {"a": 1}
    with pytest.raises(ModelError, match=r"at most 1,000,699 is allowed.*1,000,700; allow a larger ratio.*factor"):
        allocate(spectra, prices, 1_000_699)
