"""Which layers to put into factors, and at which ranks, to lose the least energy within a budget.

The energy that factors of rank r lose of a layer is the sum of its squared singular values beyond the r-th
(Eckart and Young). It falls ever more slowly with r, while the price is affine in r, so that all ranks up to some
lie on the lower convex hull of (price, loss); the layer as a whole, which loses nothing, is its last point.
Steps along these hulls are taken in the order of energy saved per price, which is the best possible wherever one of
them ends. A step that no longer fits is dropped with all beyond it, and the layer's hull is rebuilt without.

FedHM puts every layer from the ρ-th on into factors of ranks proportional to its outputs, and leaves the choice of ρ
open. Here the first layer in factors follows from the spectra and the prices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from potluck.core.errors import ModelError
from potluck.parts.lowrank.layers import Unrolled
from potluck.parts.lowrank.prices import Price, PriceList
from potluck.parts.lowrank.survey import Survey

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Allocation:
    """The ranks of the layers in factors, in the order in which they run; the rest stay whole."""

    ranks: dict[str, int]
    cost: float
    lost: float  # Σ_l Σ_{i > r_l} σ²_{l,i}
    energy: float  # Σ_l Σ_i σ²_{l,i}, of all layers

    @property
    def first(self) -> str | None:
        """The first layer in factors."""
        return next(iter(self.ranks), None)


@dataclass(frozen=True)
class Options:
    """What can become of a layer, from cheap to dear: its ranks from 1 on that cost less than the whole, and that."""

    costs: Numbers
    losses: Numbers

    @classmethod
    def of(cls, spectrum: Tensor, price: Price) -> Options:
        """The options of a layer."""
        losses = losses_of(spectrum)
        costs = price.base + price.per_rank * np.arange(1.0, len(losses) + 1)
        cheaper = costs < price.whole
        return cls(np.append(costs[cheaper], price.whole), np.append(losses[cheaper], 0.0))

    @property
    def whole(self) -> int:
        """The place of the last option."""
        return len(self.costs) - 1

    def hull(self, now: int, left: float) -> npt.NDArray[np.int64]:
        """The lower convex hull from the current option on, of those that cost at most `left` more."""
        end = int(np.searchsorted(self.costs, self.costs[now] + left, side="right"))
        if end <= self.whole or now == self.whole:
            return np.arange(now, max(end, now + 1))
        to_whole = self.losses[now:-1] / (self.costs[-1] - self.costs[now:-1])
        return np.append(np.arange(now, now + 1 + int(np.argmin(to_whole))), self.whole)


@dataclass(frozen=True)
class Steps:
    """Steps along the hulls of several layers, best first: the layer, the option it leads to, and its cost."""

    layers: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    costs: Numbers

    @classmethod
    def along(cls, options: Sequence[Options], now: Sequence[int], left: float) -> Steps:
        """Steps from where the layers are, by energy saved per cost, ties in the order of the layers."""
        layers, places, costs, worths = [], [], [], []
        for layer, (option, here) in enumerate(zip(options, now, strict=True)):
            path = option.hull(here, left)
            cost, saved = np.diff(option.costs[path]), -np.diff(option.losses[path])
            useful = saved > 0
            cost, saved = cost[useful], saved[useful]
            worth = np.divide(saved, cost, out=np.full_like(cost, np.inf), where=cost > 0)
            layers.append(np.full(len(cost), layer))
            places.append(path[1:][useful])
            costs.append(cost)
            worths.append(np.minimum.accumulate(worth))  # rounding must not put a step before those that lead to it
        best = np.argsort(-np.concatenate(worths), kind="stable")
        return cls(np.concatenate(layers)[best], np.concatenate(places)[best], np.concatenate(costs)[best])

    def taken(self, now: Sequence[int], count: int) -> list[int]:
        """The options of the layers after the first `count` steps."""
        places = np.array(now)
        np.maximum.at(places, self.layers[:count], self.places[:count])
        return [int(place) for place in places]


def allocate(spectra: Mapping[str, Tensor], prices: PriceList, budget: float) -> Allocation:
    """The ranks that lose about the least energy at a price of at most `budget`; a larger one never loses more.

    `spectra` are the squared singular values of every layer, falling; a grouped layer has one row per group.
    """
    if budget >= prices.total:
        return allocation({}, spectra, prices)
    names = list(prices.layers)
    options = [Options.of(spectra[name], prices.layers[name]) for name in names]

    def ranks(places: Sequence[int]) -> dict[str, int]:
        chosen = zip(names, places, options, strict=True)
        return {name: place + 1 for name, place, option in chosen if place < option.whole}

    start = [0] * len(names)
    least = prices.cost(ranks(start))
    if least > budget:
        raise ModelError(
            f"at most {budget:,.10g} is allowed, but with every layer at rank 1 it is still {least:,.10g}; "
            "allow a larger ratio, or put more layers into factors (fewer in whole, more in factor)"
        )
    best, found = None, start
    while prices.cost(ranks(start)) <= budget:
        found, dear = climb(options, start, lambda places: budget - prices.cost(ranks(places)))
        tried = allocation(ranks(found), spectra, prices)
        best = tried if best is None or tried.lost < best.lost else best
        if dear is None:
            break
        start[dear] = options[dear].whole  # it may be worth its price if the other layers make room
    assert best is not None
    return best


def climb(
    options: Sequence[Options], start: Sequence[int], left: Callable[[Sequence[int]], float]
) -> tuple[list[int], int | None]:
    """The options after the best steps that fit, and the first layer that would be whole if there were room."""
    places, limit, dear = list(start), np.inf, None
    while True:
        steps = Steps.along(options, places, limit)
        count = int(np.searchsorted(np.cumsum(steps.costs), left(places), side="right"))
        while count and left(steps.taken(places, count)) < 0:  # sums of seconds are rounded
            count -= 1
        if limit == np.inf and count < len(steps.costs):
            layer = int(steps.layers[count])
            dear = layer if steps.places[count] == options[layer].whole else None
        elif not count:
            return places, dear
        places = steps.taken(places, count)
        limit = left(places)


def allocation(ranks: dict[str, int], spectra: Mapping[str, Tensor], prices: PriceList) -> Allocation:
    """What these ranks cost and lose."""
    lost = sum(float(losses_of(spectra[name])[rank - 1]) for name, rank in ranks.items())
    energy = sum(float(spectra[name].double().sum()) for name in prices.layers)
    return Allocation(ranks, prices.cost(ranks), lost, energy)


def losses_of(spectrum: Tensor) -> Numbers:
    """Σ_{i > r} σ_i² for r = 1, 2, …, summed over groups."""
    energies: Numbers = spectrum.double().reshape(-1, spectrum.shape[-1]).sum(0).numpy()
    beyond = np.append(energies[1:], 0.0)
    return np.cumsum(beyond[::-1])[::-1]


def uniform(
    spectra: Mapping[str, Tensor], layers: Mapping[str, Unrolled], prices: PriceList, gamma: float
) -> Allocation:
    """r = γ · out in each of these layers (FedHM, sec. 3.3), for comparison; the rest stay whole."""
    return allocation(Survey(layers, {}).ranks(gamma), spectra, prices)
