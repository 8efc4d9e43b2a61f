"""FedAvg, whole rounds of unequal clients, statistics of batch norm included, beside a slow version."""

from __future__ import annotations

from by_hand import (
    Batch,
    Recipe,
    Sent,
    Weights,
    batch_norm,
    cross_entropy,
    descend,
    everywhere,
    furthest,
    mean_over_holders,
)
from played import Federation, Played, pictures, play
from small_network import Small, logits_of
from torch import Tensor

from potluck.core.types import Level
from potluck.methods.fedavg import FedAvg

LEVELS = (Level("wide", 1.0), Level("narrow", 0.64))
COHORTS = (((0, 0), (1, 1), (2, 1)), ((3, 1), (4, 0)))
KINDS = ("running_mean", "running_var", "num_batches_tracked")


class Plain:
    """Cross-entropy, and running statistics on the side."""

    def __init__(self, statistics: Weights) -> None:
        self.statistics = statistics

    def __call__(self, weights: Weights, batch: Batch) -> Tensor:
        def norm(name: str, x: Tensor) -> Tensor:
            values = x.detach().transpose(0, 1).flatten(1)
            mean, spread, seen = (f"{name}.{kind}" for kind in KINDS)
            self.statistics[mean] = 0.9 * self.statistics[mean] + 0.1 * values.mean(1)
            self.statistics[spread] = 0.9 * self.statistics[spread] + 0.1 * values.var(1)
            self.statistics[seen] = self.statistics[seen] + 1
            return batch_norm(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

        return cross_entropy(logits_of(weights, batch[0], norm=norm), batch[1])


def next_state(state: Weights, played: Played, recipe: Recipe) -> Weights:
    """A round: the mean by examples of everything."""
    sent = []
    for client in played.cohort:
        loss = Plain({name: tensor for name, tensor in state.items() if name.endswith(KINDS)})
        weights = {name: tensor for name, tensor in state.items() if not name.endswith(KINDS)}
        trained = descend(weights, played.batches[client.id], loss, recipe) | loss.statistics
        sent.append(Sent(trained, everywhere(trained), client.size))
    return mean_over_holders(state, sent)


def test_rounds_are_those_of_the_paper() -> None:
    recipe = Recipe(lr=0.1, clip=1.0)
    federation = Federation(Small, LEVELS, *pictures(), recipe)
    state: Weights = {}
    for played in play(FedAvg(width=0.64), federation, COHORTS):  # whoever takes part has the narrow network
        assert len(played.before["conv1.bias"]) == 7
        state = next_state(state or played.before, played, recipe)
        assert furthest(played.after, state) < 1e-12
