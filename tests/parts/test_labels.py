"""Cross-entropy over a client's classes, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from potluck.core.goals.classes import Classes
from potluck.core.types import Client, Level
from potluck.parts.labels import MaskedLoss, label_mask, masked_logits

loss_zero, loss_minus_infinity = MaskedLoss(Classes(), "zero"), MaskedLoss(Classes(), "-inf")

LOGITS = torch.tensor([[math.log(2), math.log(3), math.log(7)]])
HAS = torch.tensor([True, True, False])
BATCH = (LOGITS, torch.tensor([1]))


def client(*labels: int) -> Client:
    return Client(0, Level("all", 1.0), 4, labels)


def test_the_mask_has_the_clients_labels() -> None:
    assert label_mask(client(0, 2), 4).tolist() == [True, False, True, False]
    assert label_mask(client(), 2).tolist() == [False, False]


def test_an_absent_class_has_logit_zero() -> None:
    assert masked_logits(LOGITS, HAS, "zero")[0].tolist() == [LOGITS[0, 0], LOGITS[0, 1], 0.0]
    loss = loss_zero(nn.Identity(), BATCH, {"mask": HAS})
    assert float(loss) == pytest.approx(-math.log(3 / (2 + 3 + 1)))


def test_an_absent_class_has_probability_zero() -> None:
    loss = loss_minus_infinity(nn.Identity(), BATCH, {"mask": HAS})
    assert float(loss) == pytest.approx(-math.log(3 / (2 + 3)))


@pytest.mark.parametrize("loss", [loss_zero, loss_minus_infinity])
def test_absent_classes_get_no_gradient(loss) -> None:  # type: ignore[no-untyped-def]
    logits = LOGITS.clone().requires_grad_()
    loss(nn.Identity(), (logits, torch.tensor([1])), {"mask": HAS}).backward()
    assert logits.grad is not None
    assert logits.grad[0, 2] == 0
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[0, :2] != 0).all()


@pytest.mark.parametrize("loss", [loss_zero, loss_minus_infinity])
def test_with_every_label_it_is_plain_cross_entropy(loss) -> None:  # type: ignore[no-untyped-def]
    assert float(loss(nn.Identity(), BATCH, {"mask": torch.ones(3, dtype=torch.bool)})) == pytest.approx(math.log(4))


def test_tokens_are_masked_position_by_position() -> None:
    batch = (LOGITS.expand(2, 3, 3), torch.ones(2, 3, dtype=torch.long))
    assert float(loss_zero(nn.Identity(), batch, {"mask": HAS})) == pytest.approx(math.log(2))
