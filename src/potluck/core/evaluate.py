"""How good a network is on examples nobody trained on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from potluck.core.data import Examples, chunks
from potluck.core.method import cross_entropy


@dataclass(frozen=True)
class Score:
    """Share of targets predicted right, and mean cross-entropy."""

    accuracy: float
    loss: float


@torch.no_grad()
def evaluate(net: nn.Module, examples: Examples, batch_size: int = 500) -> Score:
    """Score a network in evaluation mode on all examples."""
    net.eval()
    right, loss, count = 0, 0.0, 0
    for inputs, targets in chunks(examples, batch_size):
        logits = net(inputs)
        right += int((logits.argmax(-1) == targets).sum())
        loss += float(cross_entropy(logits, targets)) * targets.numel()
        count += targets.numel()
    return Score(right / count, loss / count)
