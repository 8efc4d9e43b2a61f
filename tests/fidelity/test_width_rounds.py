"""HeteroFL and FedRolex, whole rounds at widths that are no powers of two, beside a slow version."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from by_hand import Batch, Recipe, Sent, Weights, cross_entropy, descend, masked, mean_over_holders, only_rows, taken
from played import COHORTS, Federation, Played, compared, pictures, play
from small_network import FULL, HEAD, Small, counts, logits_of, places
from torch import Tensor

from potluck.core.method import Method
from potluck.core.types import Level
from potluck.methods.fedrolex import FedRolex
from potluck.methods.heterofl import HeteroFL

LEVELS = (Level("wide", 1.0), Level("middle", 0.64), Level("narrow", 0.35))
NESTED = (Level("most", 0.64), Level("middle", 0.5), Level("narrow", 0.35))  # the global network is not the full one
Kept = Callable[[int, int, int], list[int]]


def first_channels(kept: int, size: int, round: int) -> list[int]:
    """HeteroFL: the first ones."""
    return list(range(kept))


def rolling(kept: int, size: int, round: int) -> list[int]:
    """FedRolex: from the round's number on, and on at the beginning."""
    return sorted((round + step) % size for step in range(kept))


def loss(labels: tuple[int, ...], ratio: float, weights: Weights, batch: Batch) -> Tensor:
    return cross_entropy(masked(logits_of(weights, batch[0], ratio), labels), batch[1])


def sent_in(kept: Kept, largest: float, recipe: Recipe, state: Weights, played: Played) -> list[Sent]:
    """What everybody sends in a round: channels taken and trained, of the head the rows of their labels."""
    sent = []
    for client in played.cohort:
        ratio, round = client.level.ratio, played.ctx.round
        chosen = [kept(*pair, round) for pair in zip(counts(ratio), counts(largest), strict=True)]
        where = places(*chosen)
        goal = partial(loss, client.labels, ratio / largest)
        trained = descend(taken(state, where), played.batches[client.id], goal, recipe)
        sent.append(only_rows(Sent(trained, where), HEAD, client.labels))
    return sent


def next_state(kept: Kept, largest: float, recipe: Recipe, state: Weights, played: Played) -> Weights:
    """A round: everything is the mean over those who had it."""
    return mean_over_holders(state, sent_in(kept, largest, recipe, state, played))


@pytest.mark.parametrize("levels", [LEVELS, NESTED], ids=["full", "nested"])
@pytest.mark.parametrize(("method", "kept"), [(HeteroFL(), first_channels), (FedRolex(), rolling)], ids=["h", "r"])
def test_rounds_are_those_of_the_paper(method: Method, kept: Kept, levels: tuple[Level, ...]) -> None:
    recipe = Recipe(lr=0.1, clip=1.0)
    federation = Federation(Small, levels, *pictures(), recipe)
    assert counts(0.35) != [full * 0.35 for full in FULL]
    compared(play(method, federation, COHORTS), partial(next_state, kept, levels[0].ratio, recipe))
