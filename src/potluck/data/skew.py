"""How unevenly labels are spread over clients: as a table and as one number."""

from __future__ import annotations

import torch
from torch import Tensor

from potluck.core.data import Holdings
from potluck.core.errors import DataError


def table(targets: Tensor, holdings: Holdings, classes: int) -> Tensor:
    """How many examples of each class each client holds, (clients, classes).

    >>> table(torch.tensor([0, 1, 1]), Holdings.of_lists([torch.tensor([0, 2]), torch.tensor([1])]), classes=2)
    tensor([[1, 1],
            [0, 1]])
    """
    if len(targets) > 0 and not 0 <= int(targets.min()) <= int(targets.max()) < classes:
        low, high = int(targets.min()), int(targets.max())
        raise DataError(f"labels go from {low} to {high}, but with {classes} classes they are 0 to {classes - 1}")
    client_of = torch.repeat_interleave(holdings.offsets.diff())
    cells = client_of * classes + targets[holdings.order]
    return cells.bincount(minlength=len(holdings) * classes).view(len(holdings), classes)


def skew(targets: Tensor, holdings: Holdings, classes: int) -> float:
    """Σᵢ nᵢ/N · ½ Σ_c |pᵢ(c) - p(c)|: how far clients' labels are from those of all clients together.

    The total variation distance of the two distributions, averaged over clients by size: the share
    of examples that would have to change hands. From 0 (all clients alike) to 1 - Σ_c p(c)², where
    every client has one class: 0.9 for ten equally frequent classes. Small clients differ by chance,
    so that even an IID partition is a little above 0.

    >>> skew(torch.tensor([0, 1, 0, 1]), Holdings.of_lists([torch.tensor([0, 2]), torch.tensor([1, 3])]), classes=2)
    0.5
    """
    counts = table(targets, holdings, classes).double()
    sizes, overall = counts.sum(1, keepdim=True), counts.sum(0) / counts.sum()
    return float((counts - sizes * overall).abs().sum() / 2 / counts.sum())
