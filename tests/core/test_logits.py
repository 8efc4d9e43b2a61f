"""Which part of an output are the logits, and what is said where that is not clear."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from outputs import Output
from potluck.core.errors import ModelError
from potluck.core.goals.classes import Classes
from potluck.core.logits import logits_of
from potluck.core.types import Loss
from potluck.parts.ensemble import Ensemble
from potluck.parts.labels import MaskedLoss
from potluck.parts.lowrank.loss import HybridLoss

LOGITS, HIDDEN = torch.zeros(2, 3), torch.ones(2, 8)


@dataclass
class Answer:
    hidden: Tensor
    logits: Tensor


@dataclass
class Unnamed:
    first: Tensor
    second: Tensor | None


class Auxiliary(NamedTuple):
    logits: Tensor
    aux_logits: Tensor


@pytest.mark.parametrize(
    "output",
    [
        LOGITS,
        Output(loss=None, logits=LOGITS, hidden_states=(HIDDEN, HIDDEN)),
        {"hidden": HIDDEN, "logits": LOGITS},
        Answer(HIDDEN, LOGITS),
        Auxiliary(LOGITS, HIDDEN),
        SimpleNamespace(hidden=HIDDEN, logits=LOGITS),
        (LOGITS,),
        [LOGITS, None],
        (LOGITS, (HIDDEN, HIDDEN)),
        (torch.tensor(0.5), LOGITS),
        (LOGITS, torch.ones(2, 3, dtype=torch.bool)),
        {"out": LOGITS},
        Unnamed(LOGITS, None),
    ],
    ids=[
        "a tensor",
        "an output object",
        "a dictionary",
        "a dataclass",
        "a named tuple",
        "any object with logits",
        "a tuple of one",
        "a list with nothing else",
        "states beside it",
        "a loss beside it",
        "a mask beside it",
        "a dictionary of one",
        "a dataclass of one",
    ],
)
def test_logits_are_found_where_they_are_clear(output: object) -> None:
    assert logits_of(output) is LOGITS


@pytest.mark.parametrize(
    ("output", "found", "access"),
    [
        ((LOGITS, HIDDEN), "tuple (0: a tensor of shape (2, 3), 1: a tensor of shape (2, 8)), and", "[0]"),
        (Output(last=HIDDEN, pooled=LOGITS), "Output (last: a tensor of shape (2, 8), pooled: a", "['last']"),
        (Unnamed(LOGITS, HIDDEN), "Unnamed (first: a tensor", ".first"),
        ({"logits": (LOGITS, LOGITS)}, "dict (logits: tuple), and", "['logits']"),
        (None, "NoneType, and", ".logits"),
        ((), "tuple, and", ".logits"),
    ],
)
def test_an_unclear_output_is_told_with_a_way_out(output: object, found: str, access: str) -> None:
    with pytest.raises(ModelError) as caught:
        logits_of(output)
    told = str(caught.value)
    assert f"the network returns {found}" in told
    assert "which part of it are the logits is not clear" in told
    assert told.endswith(f"class Mine(Net):\n    def forward(self, x): return super().forward(x){access}")


class Net(nn.Module):
    """A network whose output has to be taken apart."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        hidden = self.body(x).relu()
        return self.head(hidden), hidden


class Mine(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x)[0]


class Named(Net):
    def forward(self, x: Tensor) -> Any:
        logits, hidden = super().forward(x)
        return Output(logits=logits, hidden_states=hidden)


INPUTS = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
MASK = {"mask": torch.tensor([True, True, False])}


def test_the_subclass_that_is_told_works() -> None:
    assert torch.equal(logits_of(Mine()(INPUTS)), Net()(INPUTS)[0])


@pytest.mark.parametrize(
    "loss",
    [
        Classes(),
        MaskedLoss(Classes(), "zero"),
        MaskedLoss(Classes(), "-inf"),
        HybridLoss(Classes(), "zero", 0.0, (), 0.0, 1.0),
    ],
    ids=["plain", "masked", "masked to -inf", "hybrid"],
)
def test_every_loss_takes_the_logits_of_an_output(loss: Loss) -> None:
    targets = torch.tensor([0, 1, 0, 1, 0])
    assert torch.equal(loss(Named(), (INPUTS, targets), MASK), loss(Mine(), (INPUTS, targets), MASK))
    with pytest.raises(ModelError, match="not clear"):
        loss(Net(), (INPUTS, targets), MASK)


def test_an_ensemble_mixes_the_logits_of_outputs() -> None:
    assert torch.equal(Ensemble([Named(), Named()])(INPUTS), Ensemble([Mine(), Mine()])(INPUTS))
