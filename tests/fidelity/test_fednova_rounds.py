"""FedNova, whole rounds of clients that take unequally many steps, beside a slow version."""

from __future__ import annotations

from functools import partial

import by_hand
import pytest
from by_hand import Recipe, Weights
from played import Federation, Played, compared, pictures, play
from small_network import Small
from test_fedavg_rounds import COHORTS, LEVELS, Plain

from potluck.methods.fednova import FedNova


def length(steps: int, momentum: float) -> float:
    """How far a client comes whose gradient is 1 at every step, for a rate of 1."""
    speed = way = 0.0
    for _ in range(steps):
        speed = momentum * speed + 1
        way += speed
    return way


def next_state(recipe: Recipe, state: Weights, played: Played) -> Weights:
    """A round: the mean of how far everybody came for each unit of length, times the mean length."""
    came, total, new = [], sum(client.size for client in played.cohort), dict[str, by_hand.Tensor]()
    for client in played.cohort:
        weights, statistics = by_hand.parted(state)
        batches = played.batches[client.id]
        trained = by_hand.descend(weights, batches, Plain(statistics), recipe)
        came.append((client.size / total, length(len(batches), recipe.momentum), trained, statistics))
    assert len({each[1] for each in came}) > 1
    effective = sum(share * way for share, way, _, _ in came)
    for name, old in by_hand.parted(state)[0].items():
        new[name] = old + effective * sum(share * (trained[name] - old) / way for share, way, trained, _ in came)
    for name, old in by_hand.parted(state)[1].items():
        mean = sum(share * statistics[name].double() for share, _, _, statistics in came)
        new[name] = mean if old.is_floating_point() else mean.round().to(old.dtype)
    return new


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_rounds_are_those_of_the_paper(momentum: float) -> None:
    recipe = Recipe(lr=0.1, clip=1.0, momentum=momentum)
    federation = Federation(Small, LEVELS, *pictures(), recipe)
    compared(play(FedNova(width=0.64), federation, COHORTS), partial(next_state, recipe))
