"""Examples cut from a long text when they are asked for; overlapping windows cost nothing to hold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from potluck.core.random import stream
from potluck.core.types import Batch

MASKED_SHARE = 0.15


@dataclass(frozen=True)
class Windows:
    """`length` symbols in, the symbol after them out."""

    text: Tensor  # all symbols, one after the other
    starts: Tensor  # where each example begins
    length: int

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, index: Tensor, rng: torch.Generator | None = None) -> Batch:
        span = self.text[self.starts[index].unsqueeze(1) + torch.arange(self.length + 1)].long()
        return span[:, :-1], span[:, -1]

    def labels(self, index: Tensor) -> Tensor:
        return self.text[self.starts[index] + self.length].long()


@dataclass(frozen=True)
class MaskedWindows:
    """`length` tokens, some hidden, in; the tokens as they were, out. Hidden ones are those equal to `mask`.

    In training every position is hidden anew with a chance of 15 %; without a generator it is the
    same positions of an example every time, whatever batch it is in.
    """

    text: Tensor
    starts: Tensor
    length: int
    mask: int  # the token that hides another

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def always_hidden(self) -> Tensor:
        """The positions hidden in evaluation, for all examples."""
        return hidden((len(self), self.length), stream(0, "masked windows"))

    def take(self, index: Tensor, rng: torch.Generator | None = None) -> Batch:
        tokens = self.labels(index)
        masked = self.always_hidden[index] if rng is None else hidden(tuple(tokens.shape), rng)
        return tokens.masked_fill(masked, self.mask), tokens

    def labels(self, index: Tensor) -> Tensor:
        return self.text[self.starts[index].unsqueeze(1) + torch.arange(self.length)].long()


def hidden(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    """Which positions are masked, each by itself with a chance of 15 %."""
    return torch.rand(shape, generator=rng) < MASKED_SHARE
