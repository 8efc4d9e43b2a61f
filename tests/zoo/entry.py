"""What the zoo knows of each of its networks, and the inputs they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from potluck.core.random import seeded, stream

Inputs = Callable[[int], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Entry:
    """One network of the zoo."""

    make: Callable[[float], nn.Module]  # at a width: the network as its author would have written it narrower
    batch: Inputs  # inputs for so many examples
    normalised_over_channels: bool = False  # a norm or a mean over channels tells zeroed channels from absent ones
    channels_in_order: bool = False  # it convolves along its channels, or normalises neighbours together
    most: float = 1.8  # times the square of the width: the largest share of the parameters a narrow network may have

    def inputs(self) -> tuple[Tensor, ...]:
        """A batch of one."""
        return self.batch(1)

    def build(self, width: float = 1.0) -> nn.Module:
        """The network, with the same weights every time."""
        with seeded(0, "zoo"):
            return self.make(width)


def floats(*shapes: tuple[int, ...]) -> Inputs:
    """Inputs of these shapes (without the batch), normally distributed."""

    def batch(size: int) -> tuple[Tensor, ...]:
        rng = stream(0, "floats", size)
        return tuple(torch.randn(size, *shape, generator=rng) for shape in shapes)

    return batch


def image(side: int = 32) -> Inputs:
    """Square colour pictures."""
    return floats((3, side, side))


def tokens(most: int, *lengths: int, first: int = 4) -> Inputs:
    """Sequences of token numbers; the lowest are left out, since packages give them a meaning."""

    def batch(size: int) -> tuple[Tensor, ...]:
        rng = stream(0, "tokens", size)
        return tuple(torch.randint(first, most, (size, length), generator=rng) for length in lengths)

    return batch


def sentence_pairs(size: int) -> tuple[Tensor, ...]:
    """Tokens, which of two sentences each belongs to, and which are not padding."""
    (ids,) = tokens(100, 16)(size)
    position = torch.arange(16).expand(size, -1)
    return ids, (position >= 9).long(), (position < 14).long()


def sequence_to_sequence(size: int) -> tuple[Tensor, ...]:
    """Tokens, their mask, and tokens to start the answer from."""
    source, target = tokens(96, 12, 7)(size)
    return source, torch.ones_like(source), target


def graphs(size: int) -> tuple[Tensor, ...]:
    """Node features and a symmetric adjacency matrix with loops."""
    rng = stream(0, "graphs", size)
    edges = (torch.rand(size, 9, 9, generator=rng) < 0.3).float()
    return torch.randn(size, 9, 12, generator=rng), ((edges + edges.transpose(1, 2) + torch.eye(9)) > 0).float()
