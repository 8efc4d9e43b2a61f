"""Server optimisers on HeteroFL and FedRolex, with weights that nobody holds in a round, beside a slow version."""

from __future__ import annotations

import math
from collections.abc import Callable

import by_hand
import pytest
import torch
from by_hand import Recipe, Weights
from played import COHORTS, Federation, Played, compared, pictures, play
from small_network import Small
from test_width_rounds import LEVELS, Kept, first_channels, rolling, sent_in

from potluck.methods.fedrolex import FedRolex
from potluck.methods.heterofl import HeteroFL
from potluck.parts.server_optimizer import Adagrad, Adam, Momentum, Optimizer, Yogi

Rule = Callable[[float, float, float], tuple[float, float, float]]
"""(Δ, m, v) -> (how far the weight moves, the next m and v), one number at a time."""

NARROW = (*COHORTS[2:], *COHORTS[:2], *COHORTS[2:])  # it begins and ends with a round that the widest sit out
STARTS = {"momentum": (0.0, 0.0), "adagrad": (0.0, 0.04), "yogi": (0.0, 0.04), "adam": (0.0, 0.04)}


def momentum(delta: float, m: float, v: float) -> tuple[float, float, float]:
    m = 0.8 * m + delta
    return 0.5 * m, m, v


def adagrad(delta: float, m: float, v: float) -> tuple[float, float, float]:
    v = v + delta * delta
    return 0.5 * delta / (math.sqrt(v) + 0.2), delta, v


def yogi(delta: float, m: float, v: float) -> tuple[float, float, float]:
    m = 0.7 * m + 0.3 * delta
    square = delta * delta
    v = v - 0.1 * square if v > square else v + 0.1 * square if v < square else v
    return 0.5 * m / (math.sqrt(v) + 0.2), m, v


def adam(delta: float, m: float, v: float) -> tuple[float, float, float]:
    m = 0.7 * m + 0.3 * delta
    v = 0.9 * v + 0.1 * delta * delta
    return 0.5 * m / (math.sqrt(v) + 0.2), m, v


OPTIMIZERS: dict[str, tuple[Optimizer, Rule]] = {
    "momentum": (Momentum(lr=0.5, beta=0.8), momentum),
    "adagrad": (Adagrad(lr=0.5, tau=0.2), adagrad),
    "yogi": (Yogi(lr=0.5, beta1=0.7, beta2=0.9, tau=0.2), yogi),
    "adam": (Adam(lr=0.5, beta1=0.7, beta2=0.9, tau=0.2), adam),
}


class Slow:
    """A server that has m and v of every number in a list."""

    def __init__(self, kept: Kept, recipe: Recipe, rule: Rule, start: tuple[float, float]) -> None:
        self.kept, self.recipe, self.rule, self.start = kept, recipe, rule, start
        self.moments: dict[tuple[str, int], tuple[float, float]] = {}
        self.idle = 0

    def next_state(self, state: Weights, played: Played) -> Weights:
        sent = sent_in(self.kept, 1.0, self.recipe, state, played)
        mean = by_hand.mean_over_holders(state, sent)
        ones = [
            by_hand.Sent({name: torch.ones_like(tensor) for name, tensor in each.tensors.items()}, each.places)
            for each in sent
        ]
        covered = by_hand.mean_over_holders({name: torch.zeros_like(tensor) for name, tensor in state.items()}, ones)
        new = {}
        for name, old in state.items():
            flat = old.flatten().tolist()
            for at, (weight, goal) in enumerate(zip(flat, mean[name].flatten().tolist(), strict=True)):
                if not covered[name].flatten()[at]:
                    self.idle += 1
                    continue
                far, *moments = self.rule(goal - weight, *self.moments.get((name, at), self.start))
                self.moments[name, at] = moments[0], moments[1]
                flat[at] = weight + far
            new[name] = torch.tensor(flat, dtype=torch.float64).view(old.shape)
        return new


def without_moments(state: Weights) -> Weights:
    return {name: tensor for name, tensor in state.items() if not name.startswith("moments/")}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(("method", "kept"), [(HeteroFL, first_channels), (FedRolex, rolling)], ids=["h", "r"])
def test_rounds_are_those_of_the_papers(method: type[HeteroFL | FedRolex], kept: Kept, name: str) -> None:
    recipe, (optimizer, rule) = Recipe(lr=0.1, clip=1.0), OPTIMIZERS[name]
    federation = Federation(Small, LEVELS, *pictures(), recipe)
    slow = Slow(kept, recipe, rule, STARTS[name])
    compared(play(method(server=optimizer), federation, NARROW), slow.next_state, 1e-11, without_moments)
    assert slow.idle > 100  # seen: 650 and more
