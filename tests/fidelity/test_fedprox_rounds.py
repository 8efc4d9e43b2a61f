"""FedProx, whole rounds of unequal clients, beside a slow version."""

from __future__ import annotations

from functools import partial

import by_hand
from by_hand import Batch, Recipe, Weights
from played import Federation, Played, compared, pictures, play
from small_network import Small
from test_fedavg_rounds import COHORTS, LEVELS, Plain
from torch import Tensor

from potluck.methods.fedprox import FedProx

MU = 0.3


class Near(Plain):
    """Cross-entropy, and half of μ times the sum of the squares of how far each number has come."""

    def __init__(self, statistics: Weights, start: Weights) -> None:
        super().__init__(statistics)
        self.start = start

    def __call__(self, weights: Weights, batch: Batch) -> Tensor:
        loss = super().__call__(weights, batch)
        for name, tensor in weights.items():
            for new, old in zip(tensor.flatten(), self.start[name].flatten(), strict=True):
                loss = loss + MU / 2 * (new - old) ** 2
        return loss


def next_state(recipe: Recipe, state: Weights, played: Played) -> Weights:
    """A round: everybody stays near, then the mean by examples of everything."""
    sent = []
    for client in played.cohort:
        weights, statistics = by_hand.parted(state)
        trained = by_hand.descend(weights, played.batches[client.id], Near(statistics, weights), recipe) | statistics
        sent.append(by_hand.Sent(trained, by_hand.everywhere(trained), client.size))
    return by_hand.mean_over_holders(state, sent)


def test_rounds_are_those_of_the_paper() -> None:
    recipe = Recipe(lr=0.1, clip=1.0)
    federation = Federation(Small, LEVELS, *pictures(), recipe)
    compared(play(FedProx(width=0.64, mu=MU), federation, COHORTS), partial(next_state, recipe))
