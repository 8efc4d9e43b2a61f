"""SCAFFOLD, whole rounds in which clients come back, beside a slow version.

What a client keeps is computed here as the mean of its gradients, and not, as in the paper, from the way it went.
"""

from __future__ import annotations

import by_hand
import pytest
import torch
from by_hand import Recipe, Weights
from played import SIZES, Federation, Played, compared, pictures, play
from small_network import Small
from test_fedavg_rounds import LEVELS, Plain

from potluck.methods.scaffold import SCAFFOLD
from potluck.parts.server_optimizer import Momentum

COHORTS = (((0, 0), (1, 1), (2, 1)), ((2, 0), (4, 0), (1, 1)), ((3, 1), (2, 0), (0, 0)))


class Slow:
    """The server and all clients."""

    def __init__(self, recipe: Recipe, server_rate: float) -> None:
        self.recipe, self.server_rate = recipe, server_rate
        self.control: dict[int, Weights] = {}  # c_i

    def trained(
        self, client: int, weights: Weights, everybody: Weights, statistics: Weights, played: Played
    ) -> Weights:
        """y ← y - η (g - c_i + c), batch after batch; c_i becomes the mean of g."""
        own = self.control.get(client, {name: torch.zeros_like(w) for name, w in weights.items()})
        total, steps = {name: torch.zeros_like(w) for name, w in weights.items()}, 0
        loss = Plain(statistics)
        for batch in played.batches[client]:
            leaves = {name: w.clone().requires_grad_() for name, w in weights.items()}
            loss(leaves, batch).backward()
            steps += 1
            for name, leaf in leaves.items():
                assert leaf.grad is not None
                slope = leaf.grad + self.recipe.weight_decay * leaf.detach()
                total[name] += slope
                weights[name] = weights[name] - self.recipe.rate(played.ctx.round) * (
                    slope - own[name] + everybody[name]
                )
        self.control[client] = {name: sum / steps for name, sum in total.items()}
        return weights

    def next_state(self, state: Weights, played: Played) -> Weights:
        """A round; c is the mean of all c_i, also of those who have none yet."""
        kept = {name: tensor for name, tensor in state.items() if not name.startswith("control/")}
        everybody = {name.removeprefix("control/"): c for name, c in state.items() if name.startswith("control/")}
        sent = []
        for client in played.cohort:
            weights, statistics = by_hand.parted(kept)
            trained = self.trained(client.id, dict(weights), everybody, statistics, played) | statistics
            sent.append(by_hand.Sent(trained, by_hand.everywhere(trained)))
        new = by_hand.mean_over_holders(kept, sent)
        for name, old in by_hand.parted(kept)[0].items():
            new[name] = old + self.server_rate * (new[name] - old)
        c = {name: sum(own[name] for own in self.control.values()) / len(SIZES) for name in everybody}
        return new | {f"control/{name}": tensor for name, tensor in c.items()}


@pytest.mark.parametrize("rate", [1.0, 0.7])
def test_rounds_are_those_of_the_paper(rate: float) -> None:
    recipe = Recipe(lr=0.1, momentum=0.0, milestones=(1,))
    federation = Federation(Small, LEVELS, *pictures(), recipe)
    method = SCAFFOLD(server=None if rate == 1 else Momentum(lr=rate, beta=0.0))
    slow = Slow(recipe, rate)
    compared(play(method, federation, COHORTS), slow.next_state, learned=without_moments)
    assert set(slow.control) == {0, 1, 2, 3, 4}


def without_moments(state: Weights) -> Weights:
    return {name: tensor for name, tensor in state.items() if not name.startswith("moments/")}
