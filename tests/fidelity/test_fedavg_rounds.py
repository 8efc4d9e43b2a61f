"""FedAvg, whole rounds of unequal clients, statistics of batch norm included, beside a slow version."""

from __future__ import annotations

from functools import partial

import by_hand
from by_hand import Batch, Recipe, Weights
from played import Federation, Played, compared, pictures, play
from small_network import Small, logits_of
from torch import Tensor

from potluck.core.types import Level
from potluck.methods.fedavg import FedAvg

LEVELS = (Level("wide", 1.0), Level("narrow", 0.64))
COHORTS = (((0, 0), (1, 1), (2, 1)), ((3, 1), (4, 0)))


class Plain:
    """Cross-entropy, and running statistics on the side."""

    def __init__(self, statistics: Weights) -> None:
        self.statistics = statistics

    def __call__(self, weights: Weights, batch: Batch) -> Tensor:
        def norm(name: str, x: Tensor) -> Tensor:
            return by_hand.noted_norm(x, weights[f"{name}.weight"], weights[f"{name}.bias"], self.statistics, name)

        return by_hand.cross_entropy(logits_of(weights, batch[0], norm=norm), batch[1])


def next_state(recipe: Recipe, state: Weights, played: Played) -> Weights:
    """A round: the mean by examples of everything."""
    sent = []
    for client in played.cohort:
        weights, statistics = by_hand.parted(state)
        trained = by_hand.descend(weights, played.batches[client.id], Plain(statistics), recipe) | statistics
        sent.append(by_hand.Sent(trained, by_hand.everywhere(trained), client.size))
    return by_hand.mean_over_holders(state, sent)


def test_rounds_are_those_of_the_paper() -> None:
    recipe = Recipe(lr=0.1, clip=1.0)
    federation = Federation(Small, LEVELS, *pictures(), recipe)
    rounds = play(FedAvg(width=0.64), federation, COHORTS)
    for state in compared(rounds, partial(next_state, recipe)):
        assert len(state["conv1.bias"]) == 7  # whoever takes part has the narrow network
