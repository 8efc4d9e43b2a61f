"""FedHM, whole rounds with factors of several ranks, beside a slow version."""

from __future__ import annotations

import pytest
from by_hand import Recipe, Weights
from low_rank import LowRank, Settings, ranks
from played import COHORTS, Federation, compared, pictures, play
from small_network import Small, logits_of

from potluck.core.types import Level, Tensors
from potluck.methods.fedhm import FedHM

LEVELS = (Level("whole", 1.0), Level("half", 0.5), Level("quarter", 0.25))
LAYERS = ["conv2", "linear"]  # neither the first nor the head


def learned(state: Tensors) -> Weights:
    """The network, without what the server notes for itself."""
    return {name: tensor for name, tensor in state.items() if not name.startswith("kept/")}


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (FedHM(), Settings()),
        (FedHM(self_distill=0.3), Settings(distill=0.3)),
        (FedHM(self_distill=0.1, distill_temperature=3.0), Settings(distill=0.1, distill_temperature=3.0)),
        (
            FedHM(score="-1/gamma", temperature=5.0, double_decay=True, by_size=True),
            Settings(inverse_score=True, temperature=5.0, double_decay=True, by_size=True),
        ),
        (FedHM(keep_global=False), Settings(keep_global=False)),
    ],
    ids=["defaults", "self-distillation", "warmer", "as the authors' code", "without the global network"],
)
def test_rounds_are_those_of_the_paper(method: FedHM, settings: Settings) -> None:
    recipe = Recipe(lr=0.05)
    federation = Federation(Small, LEVELS, *pictures(), recipe)
    slow = LowRank(logits_of, LAYERS, recipe, settings)
    *_, state = compared(play(method, federation, COHORTS), slow.next_state, 1e-10, learned)
    assert ranks(state, LAYERS, 0.5) == {"conv2": 4}  # of the linear layer, 4 · (9 + 7) would be more than 9 · 7
    assert ranks(state, LAYERS, 0.25) == {"conv2": 2, "linear": 2}
