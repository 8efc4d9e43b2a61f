"""Several networks that answer together."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from potluck.core.logits import logits_of


class Ensemble(nn.Module):
    """Networks of one shape; the answer is the mean of their logits."""

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([logits_of(member(inputs)) for member in self.members]).mean(0)
