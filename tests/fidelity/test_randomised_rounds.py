"""FedHM with randomised decompositions over many rounds, beside LAPACK's in a slow version."""

from __future__ import annotations

import torch
from by_hand import Recipe, Weights, batch_norm
from low_rank import LowRank, Settings, factors
from played import Federation, pictures, play
from torch import Tensor, nn

from potluck.core.types import Level, Tensors
from potluck.methods.fedhm import FedHM

WIDTH, ROUNDS, ERROR = 40, 15, 0.01
LEVELS = (Level("whole", 1.0), Level("quarter", 0.25), Level("eighth", 0.125))
RANKS = {"quarter": 10, "eighth": 5}
LAYER = "middle"


class Wide(nn.Module):
    """A layer large enough to be decomposed by random vectors, whose singular values fall."""

    def __init__(self, width: float) -> None:
        super().__init__()
        self.first = nn.Linear(25, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.middle = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 4)
        with torch.no_grad():
            left, values, right = torch.linalg.svd(self.middle.weight)
            self.middle.weight.copy_(left @ torch.diag(values * 0.9 ** torch.arange(WIDTH)) @ right)

    def forward(self, pictures: Tensor) -> Tensor:
        features = self.norm(self.first(pictures.flatten(1))).relu()
        logits: Tensor = self.head(self.middle(features).relu())
        return logits


def logits_of(w: Weights, pictures: Tensor) -> Tensor:
    x = pictures.flatten(1) @ w["first.weight"].T + w["first.bias"]
    x = batch_norm(x, w["norm.weight"], w["norm.bias"]).clamp(min=0)
    x = (x @ w["middle.weight"].T + w["middle.bias"]).clamp(min=0)
    return x @ w["head.weight"].T + w["head.bias"]


def beyond_the_best(weight: Tensor, payload: Tensors, rank: int) -> float:
    """By which share the error of what was sent exceeds the smallest possible."""
    left, right = factors(weight, rank)
    best = torch.linalg.matrix_norm(weight - left @ right)
    sent = payload[f"{LAYER}.second.weight"] @ payload[f"{LAYER}.first.weight"]
    return float(torch.linalg.matrix_norm(weight - sent) / best) - 1


def test_errors_stay_within_bounds_and_do_not_add_up() -> None:
    method, recipe = FedHM(svd="randomised", svd_error=ERROR), Recipe(lr=0.02)
    federation = Federation(Wide, LEVELS, *pictures(), recipe)
    cohorts = [[(id, (id + round) % 3) for id in range(round % 2, 5)] for round in range(ROUNDS)]
    slow, state = LowRank(logits_of, [LAYER], recipe, Settings()), {}
    inexact = 0
    for played in play(method, federation, cohorts):
        for client in played.cohort:
            rank = RANKS.get(client.level.name)
            if rank is not None:
                payload = method.distribute(played.before, client, played.ctx)
                worse = beyond_the_best(played.before[f"{LAYER}.weight"], payload, rank)
                assert worse <= ERROR
                inexact += worse > 1e-9
        state = slow.next_state(state or {n: t for n, t in played.before.items() if not n.startswith("kept/")}, played)
    assert inexact > ROUNDS  # most were indeed not exact
    found, expected = played.after[f"{LAYER}.weight"], state[f"{LAYER}.weight"]
    apart = torch.linalg.matrix_norm(found - expected) / torch.linalg.matrix_norm(expected)
    assert float(apart) < 1e-3  # 1.4e-4 after the first round, 3.6e-5 after the last
