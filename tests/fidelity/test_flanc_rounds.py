"""FLANC, whole rounds across the drop of the learning rate, beside a slow version."""

from __future__ import annotations

from functools import partial

import by_hand
import pytest
import torch
import torch.nn.functional as F
from by_hand import Batch, Recipe, Weights
from played import COHORTS, Federation, Played, compared, pictures, play
from torch import Tensor, nn

from potluck.core.types import Level
from potluck.methods.flanc import FLANC

LEVELS = (Level("wide", 1.0), Level("three-quarters", 0.75), Level("half", 0.5))
STRENGTH = 10.0


class Composable(nn.Module):
    """A stem, a convolution and a linear layer that are composed, batch norm, and a head."""

    def __init__(self, width: float) -> None:
        super().__init__()
        n = round(16 * width)
        self.stem = nn.Conv2d(1, n, 3, padding=1)
        self.conv = nn.Conv2d(n, n, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(n)
        self.linear = nn.Linear(n, n)
        self.head = nn.Linear(n, 4)

    def forward(self, pictures: Tensor) -> Tensor:
        features = self.norm(self.conv(self.stem(pictures).relu())).relu().mean((2, 3))
        logits: Tensor = self.head(self.linear(features).relu())
        return logits


def composed(basis: Tensor, coefficients: Tensor) -> Tensor:
    """Every group of R1 inputs has R2 coefficients for each output, one for each piece of the basis."""
    pieces = len(basis)
    groups = []
    for start in range(0, coefficients.shape[1], pieces):
        group = sum(
            coefficients[:, start + piece].reshape(-1, *[1] * (basis.dim() - 1)) * basis[piece]
            for piece in range(pieces)
        )
        groups.append(group)
    return torch.cat(groups, dim=1)  # type: ignore[arg-type]


def apart(basis: Tensor) -> Tensor:
    """The mean square of V Vᵀ - I."""
    total = torch.zeros((), dtype=torch.float64)
    for i, one in enumerate(basis):
        for j, other in enumerate(basis):
            total = total + ((one * other).sum() - float(i == j)) ** 2
    return total / len(basis) ** 2


class Composed:
    """The loss at one width, and running statistics on the side."""

    def __init__(self, statistics: Weights) -> None:
        self.statistics = statistics

    def __call__(self, w: Weights, batch: Batch) -> Tensor:
        x = F.conv2d(batch[0], w["stem.weight"], w["stem.bias"], padding=1).clamp(min=0)
        x = F.conv2d(x, composed(w["basis/conv"], w["conv.coefficients"]), stride=2, padding=1)
        x = by_hand.noted_norm(x, w["norm.weight"], w["norm.bias"], self.statistics, "norm").clamp(min=0).mean((2, 3))
        x = (x @ composed(w["basis/linear"], w["linear.coefficients"]).T + w["linear.bias"]).clamp(min=0)
        loss = by_hand.cross_entropy(x @ w["head.weight"].T + w["head.bias"], batch[1])
        return loss + STRENGTH * (apart(w["basis/conv"]) + apart(w["basis/linear"]))


def next_state(recipe: Recipe, state: Weights, played: Played) -> Weights:
    """A round: bases over everybody, the rest among those of one width, by examples."""
    sent = []
    for client in played.cohort:
        own = f"{client.level.ratio}/"
        held = {n.removeprefix(own): t for n, t in state.items() if n.startswith((own, "basis/"))}
        weights, statistics = by_hand.parted(held)
        loss, batches = Composed(statistics), played.batches[client.id]
        trained = by_hand.descend(weights, batches, loss, recipe, played.ctx.round) | statistics
        named = {name if name.startswith("basis/") else own + name: tensor for name, tensor in trained.items()}
        sent.append(by_hand.Sent(named, by_hand.everywhere(named), client.size))
    return by_hand.mean_over_holders(state, sent)


@pytest.mark.parametrize("form", ["compose", "grouped"])
def test_rounds_are_those_of_the_paper(form: str) -> None:
    recipe = Recipe(lr=0.05, milestones=(1,))
    federation = Federation(Composable, LEVELS, *pictures(), recipe)
    rounds = play(FLANC(form=form), federation, COHORTS)  # type: ignore[arg-type]
    *_, state = compared(rounds, partial(next_state, recipe), within=1e-11)
    assert state["basis/conv"].shape == (4, 2, 3, 3)
    assert state["0.75/conv.coefficients"].shape == (12, 6 * 4)
