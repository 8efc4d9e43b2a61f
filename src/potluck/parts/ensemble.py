"""Several networks that answer together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from potluck.core.inputs import joined
from potluck.core.logits import LOGITS, entries_of


class Ensemble(nn.Module):
    """Networks of one shape; the answer is the mean of their logits, or of all that they give if none is called so."""

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return joined([answer(member(*args, **kwargs)) for member in self.members], mean)


def answer(output: Any) -> Any:
    """The part of a member's output that is averaged."""
    return output if isinstance(output, Tensor) else entries_of(output).get(LOGITS, output)


def mean(outputs: list[Tensor]) -> Tensor:
    """The mean over members."""
    return torch.stack(outputs).mean(0)
