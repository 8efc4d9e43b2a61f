"""Who holds which scalars of a tensor, with which weight."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, chain

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from potluck.parts.cut.kept import Cut, Kept

Edges = tuple[int, ...]
"""Where the intervals of a dimension begin, and where the last one ends."""

REMEMBERED = 1024  # grids; cohorts resemble each other from round to round
MOST_SCALARS = 1 << 24  # of the ratios that are remembered with them, 64 MiB
MANY = 8  # bands of rows; if there are more, all are gathered at once


@dataclass(frozen=True)
class Band:
    """Some rows of a wide tensor, the same rows of a narrow one, and how far these move the wide ones."""

    wide: slice | Tensor
    narrow: slice
    ratio: float | Tensor
    anew: bool  # some scalars have no holder yet


@dataclass(frozen=True, eq=False)
class Holders:
    """The weight of all who hold a scalar, on a grid as fine as their cuts."""

    edges: tuple[Edges, ...]
    weight: npt.NDArray[np.float64]

    @classmethod
    @lru_cache(REMEMBERED)
    def nobody(cls, shape: tuple[int, ...]) -> Holders:
        """Nobody holds anything: the grid has one cell."""
        return cls(tuple((0, size) for size in shape), np.zeros([1] * len(shape)))

    def join(self, cut: Cut, weight: float, dtype: torch.dtype) -> tuple[Holders, list[Band]]:
        """One more holder, and its share in the weight of what it holds."""
        if self.weight.size == 1 and all(kept.whole for kept in cut):
            both = self.weight + weight
            return Holders(self.edges, both), [Band(slice(None), slice(None), weight / both.item(), False)]
        total, edges = self.weight.copy(), list(self.edges)
        cells: list[Sequence[int]] = []
        for dim, kept in enumerate(cut):
            if not kept.whole:
                old, edges[dim] = edges[dim], refine(edges[dim], kept)
                if len(edges[dim]) > len(old):
                    total = total.take([bisect_right(old, start) - 1 for start in edges[dim][:-1]], axis=dim)
            cells.append(held_cells(edges[dim], kept))
        held = np.ix_(*cells)
        total[held] += weight
        ratio, joined = weight / total[held], Holders(tuple(edges), total)
        if ratio.size == 1 or (ratio == ratio.flat[0]).all():
            share = ratio.flat[0].item()
            if len(cut[0].runs) > MANY:
                return joined, [Band(cut[0].indices, slice(None), share, False)]
            return joined, [Band(*rows, share, False) for rows in rows_of(cut[0].runs)]
        return joined, bands(ratio, tuple(edges), cells, cut, dtype)

    @property
    def mask(self) -> Tensor:
        """Which scalars anybody holds."""
        mask = torch.from_numpy(self.weight > 0)
        for dim, edges in enumerate(self.edges):
            mask = mask.repeat_interleave(torch.tensor(edges).diff(), dim)
        return mask


Question = tuple[Holders, Cut, float, torch.dtype]


@dataclass
class Joins:
    """How holders joined, the newest of it; bounded by number and by memory."""

    known: dict[Question, tuple[Holders, list[Band]]] = field(default_factory=dict)
    scalars: int = 0

    def found(self, question: Question) -> tuple[Holders, list[Band]]:
        """The answer, known or worked out."""
        answer = self.known.get(question)
        if answer is None:
            holders, cut, weight, dtype = question
            answer = self.known[question] = holders.join(cut, weight, dtype)
            self.scalars += scalars_of(answer[1])
            while len(self.known) > REMEMBERED or (self.scalars > MOST_SCALARS and len(self.known) > 1):
                self.scalars -= scalars_of(self.known.pop(next(iter(self.known)))[1])
        return answer


JOINED = Joins()


def scalars_of(bands: Sequence[Band]) -> int:
    """How many ratios there are."""
    return sum(band.ratio.numel() for band in bands if isinstance(band.ratio, Tensor))


def bands(
    ratio: npt.NDArray[np.float64], edges: tuple[Edges, ...], cells: list[Sequence[int]], cut: Cut, dtype: torch.dtype
) -> list[Band]:
    """The held rows, gathered or band by band, with a ratio for each of their scalars."""
    anew, gathered = bool((ratio == 1).any()), len(cells[0]) > MANY
    for dim in range(0 if gathered else 1, ratio.ndim):
        if ratio.shape[dim] > 1:
            ratio = ratio.repeat([edges[dim][cell + 1] - edges[dim][cell] for cell in cells[dim]], axis=dim)
    shares = torch.from_numpy(ratio).to(dtype).expand(-1, *(kept.count for kept in cut[1:])).contiguous()
    if gathered:
        return [Band(cut[0].indices, slice(None), shares, anew)]
    rows = rows_of([(edges[0][cell], edges[0][cell + 1]) for cell in cells[0]])
    return [Band(wide, narrow, shares[at : at + 1], anew) for at, (wide, narrow) in enumerate(rows)]


def rows_of(runs: Sequence[tuple[int, int]]) -> list[tuple[slice, slice]]:
    """Where runs of rows lie in the wide and, side by side, in the narrow tensor."""
    ends = accumulate(end - start for start, end in runs)
    return [(slice(start, end), slice(to - end + start, to)) for (start, end), to in zip(runs, ends, strict=True)]


def refine(edges: Edges, kept: Kept) -> Edges:
    """The edges, and those of the runs of held indices."""
    return tuple(sorted({*edges, *chain.from_iterable(kept.runs)}))


def held_cells(edges: Edges, kept: Kept) -> Sequence[int]:
    """Which of the intervals between edges are held."""
    if kept.whole:
        return range(len(edges) - 1)
    starts, ends = zip(*kept.runs, strict=True)
    return [cell for cell, start in enumerate(edges[:-1]) if bisect_right(starts, start) > bisect_right(ends, start)]
