"""Which of a layer's channels a client gets: the one difference between the width methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from potluck.core.random import stream


@dataclass(frozen=True)
class Block:
    """Channels among which a choice is made: a layer's, or those of one head or gate."""

    channels: tuple[int, ...]  # ids, in the order in which the layer has them

    @property
    def size(self) -> int:
        return len(self.channels)


class Choice(Protocol):
    """A rule that picks channels; frozen and hashable, since plans are remembered by it."""

    def __hash__(self) -> int: ...

    def __call__(self, block: Block, kept: int) -> Sequence[int]:
        """The kept positions in the block, ascending."""


def window(start: int, kept: int, size: int) -> list[int]:
    """{start, …, start + kept - 1} mod size, ascending: a window that goes on at the other end.

    >>> window(6, 4, 8)
    [0, 1, 6, 7]
    """
    return sorted((start + step) % size for step in range(kept))


@dataclass(frozen=True)
class Prefix:
    """The first channels (HeteroFL, FjORD): a narrower network lies inside every wider one."""

    def __call__(self, block: Block, kept: int) -> Sequence[int]:
        return range(kept)


@dataclass(frozen=True)
class Rolling:
    """{t, …, t + k - 1} mod n (FedRolex, sec. 3.2): as the offset grows, every channel has its turn equally often."""

    offset: int

    def __call__(self, block: Block, kept: int) -> Sequence[int]:
        return window(self.offset, kept, block.size)


@dataclass(frozen=True)
class Disjoint:
    """One of several windows spread evenly (Split-Mix): they share no channel if all of them fit side by side."""

    number: int
    of: int

    def __call__(self, block: Block, kept: int) -> Sequence[int]:
        return window(self.number * block.size // self.of, kept, block.size)


@dataclass(frozen=True)
class Random:
    """Any channels with equal chance (federated dropout); the seed and the block decide which."""

    seed: int

    def __call__(self, block: Block, kept: int) -> Sequence[int]:
        order = torch.randperm(block.size, generator=stream(self.seed, "channels", block.channels))
        return sorted(order[:kept].tolist())


@dataclass(frozen=True)
class Largest:
    """The channels of largest norm, the first among equals."""

    norms: tuple[float, ...]  # by the channel's id

    def __call__(self, block: Block, kept: int) -> Sequence[int]:
        norms = [self.norms[channel] for channel in block.channels]
        return sorted(sorted(range(block.size), key=lambda at: -norms[at])[:kept])
