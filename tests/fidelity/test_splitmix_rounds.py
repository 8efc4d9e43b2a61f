"""Split-Mix, whole rounds with masked classes and a number of bases that is no power of two, beside a slow version."""

from __future__ import annotations

from functools import partial

import pytest
from by_hand import Batch, Recipe, Sent, Weights, cross_entropy, descend, everywhere, masked, mean_over_holders
from played import COHORTS, Federation, Played, compared, pictures, play
from small_network import Small, logits_of
from torch import Tensor

from potluck.core.types import Level
from potluck.methods.splitmix import SplitMix

THREE = (Level("three", 1.0), Level("two", 0.67), Level("one", 0.34))
CARRIED = {"one": 1, "two": 2, "three": 3, "four": 4}
FOUR = (Level("four", 1.0), Level("two", 0.5), Level("one", 0.25))


def loss(labels: tuple[int, ...], bases: list[int], weights: Weights, batch: Batch) -> Tensor:
    """The sum of the bases' losses, each masked by the client's classes and scaled by its width."""
    total = 0.0
    for base in bases:
        own = {name.removeprefix(f"{base}/"): tensor for name, tensor in weights.items() if name.startswith(f"{base}/")}
        total = total + cross_entropy(masked(logits_of(own, batch[0], width_of(own)), labels), batch[1])
    assert isinstance(total, Tensor)
    return total


def width_of(base: Weights) -> float:
    """1/4 has ⌈10/4⌉ channels in its first layer, 1/3 has ⌈10/3⌉."""
    return {3: 1 / 4, 4: 1 / 3}[len(base["conv1.bias"])]


def next_state(method: SplitMix, recipe: Recipe, state: Weights, played: Played) -> Weights:
    """A round: a base is the mean by examples over those who trained it. Who trains which is drawn, and given here."""
    sent = []
    for client in played.cohort:
        bases = method.chosen(client, played.ctx)
        assert len(bases) == CARRIED[client.level.name]
        own = {name: tensor for name, tensor in state.items() if int(name.split("/")[0]) in bases}
        trained = descend(own, played.batches[client.id], partial(loss, client.labels, bases), recipe)
        sent.append(Sent(trained, everywhere(trained), client.size))
    return mean_over_holders(state, sent)


@pytest.mark.parametrize("levels", [THREE, FOUR], ids=["three bases", "four bases"])
def test_rounds_are_those_of_the_paper(levels: tuple[Level, ...]) -> None:
    method, recipe = SplitMix(), Recipe(lr=0.05, clip=1.0)
    federation = Federation(Small, levels, *pictures(), recipe)
    compared(play(method, federation, COHORTS), partial(next_state, method, recipe))
