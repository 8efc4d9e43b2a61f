"""Pieces of channels that must stay equally long, told from all the slices that a run took of a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


def even(pieces: Sequence[Tensor]) -> list[Tensor]:
    """Rows of atoms that must stay equally long: pieces of one length together, others each for itself."""
    return [torch.cat(list(pieces))] if len({piece.shape[-1] for piece in pieces}) == 1 else list(pieces)


@dataclass
class Slices:
    """The slices that were taken of one dimension of a tensor."""

    lines: list[Tensor]  # rows of atoms along that dimension
    taken: set[tuple[int, int]] = field(default_factory=set)  # start and length

    def rows(self) -> Iterator[Tensor]:
        """Rows that must stay equally long."""
        for lines in self.lines:
            for sizes in partitions(lines.shape[-1], self.taken):
                yield from even(lines.split(sizes, dim=-1))


def partitions(whole: int, taken: set[tuple[int, int]]) -> list[list[int]]:
    """How slices divide a dimension: all of them together, or each for itself if they leave gaps or overlap.

    >>> partitions(16, {(0, 4), (4, 12)}), partitions(16, {(4, 4)}), partitions(10, {(3, 4)})
    ([[4, 12]], [[4, 4, 4, 4]], [[3, 4, 3]])
    """
    ordered = sorted(taken)
    ends = [0, *(start + size for start, size in ordered)]
    if ends[-1] == whole and all(start == end for (start, _), end in zip(ordered, ends, strict=False)):
        return [[size for _, size in ordered]]
    return [around(whole, start, size) for start, size in ordered]


def around(whole: int, start: int, size: int) -> list[int]:
    """One slice and what it leaves: equal pieces if it can be one of several."""
    if whole % size == 0 and start % size == 0:
        return [size] * (whole // size)
    return [each for each in (start, size, whole - start - size) if each]
