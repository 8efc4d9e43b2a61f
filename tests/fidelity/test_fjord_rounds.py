"""FjORD, whole rounds with widths drawn at every step and statistics for each, beside a slow version."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from by_hand import Batch, Places, Recipe, Sent, Weights, cross_entropy, descend, mean_over_holders, noted_norm, taken
from played import COHORTS, SEED, Federation, Played, compared, pictures, play
from small_network import Small, counts, logits_of, places
from torch import Tensor

from potluck.core.random import seeded
from potluck.core.types import Client, Level
from potluck.methods.fjord import FjORD

LEVELS = (Level("wide", 1.0), Level("middle", 0.64), Level("narrow", 0.35))


def first_channels(ratio: float) -> list[list[int]]:
    return [list(range(kept)) for kept in counts(ratio)]


def statistics_places(ratio: float) -> Places:
    """Where a width's own statistics lie in the server's."""
    first, second, _ = first_channels(ratio)
    each = {"running_mean": True, "running_var": True, "num_batches_tracked": False}
    return {
        f"{ratio}/{norm}.{kind}": (channels,) if by_channel else ()
        for norm, channels in (("norm1", first), ("norm2", second))
        for kind, by_channel in each.items()
    }


class Steps:
    """The loss of a client's steps, each at the width that was drawn for it; it notes statistics as it goes."""

    def __init__(self, client: Client, draws: list[int], statistics: Weights, distill: bool) -> None:
        narrower = [level.ratio for level in LEVELS if level.ratio < client.level.ratio]
        self.widest, self.distill, self.statistics = client.level.ratio, distill, statistics
        self.widths = iter([[*narrower, self.widest][drawn] for drawn in draws])

    def __call__(self, weights: Weights, batch: Batch) -> Tensor:
        pictures, targets = batch
        width = next(self.widths)
        if not self.distill:
            return cross_entropy(self.logits(weights, pictures, width), targets)
        taught = self.logits(weights, pictures, self.widest)
        loss = cross_entropy(taught, targets)
        if width == self.widest:
            return loss
        probable = (taught.exp() / taught.exp().sum(1, keepdim=True)).detach()
        said = self.logits(weights, pictures, width)
        likely = said - said.exp().sum(1, keepdim=True).log()
        return loss - (probable * likely).sum() / len(targets)

    def logits(self, weights: Weights, pictures: Tensor, width: float) -> Tensor:
        """The first channels of the client's own network, with the statistics of that width."""
        part = taken(weights, places(*first_channels(width)))

        def norm(name: str, x: Tensor) -> Tensor:
            own = part[f"{name}.weight"], part[f"{name}.bias"]
            return noted_norm(x, *own, self.statistics, f"{width}/{name}")

        return logits_of(part, pictures, norm=norm)


def next_state(recipe: Recipe, distill: bool, state: Weights, played: Played) -> Weights:
    """A round: every slice is the mean by examples over those wide enough to have it."""
    sent = []
    for client in played.cohort:
        batches, widths = played.batches[client.id], [each for each in LEVELS if each.ratio <= client.level.ratio]
        with seeded(SEED, "train", played.ctx.round, client.id):  # where a client's draws come from
            draws = [int(torch.randint(len(widths), ())) for _ in batches]
        where, own = places(*first_channels(client.level.ratio)), {}
        for level in widths:
            own |= statistics_places(level.ratio)
        steps = Steps(client, draws, taken(state, own), distill)
        trained = descend(taken(state, where), batches, steps, recipe)
        sent.append(Sent({**trained, **steps.statistics}, {**where, **own}, client.size))
    return mean_over_holders(state, sent)


@pytest.mark.parametrize("distill", [True, False])
def test_rounds_are_those_of_the_authors_baseline(distill: bool) -> None:
    recipe = Recipe(lr=0.1)
    federation = Federation(Small, LEVELS, *pictures(), recipe)
    compared(play(FjORD(distill=distill), federation, COHORTS), partial(next_state, recipe, distill))
