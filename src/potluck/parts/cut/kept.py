"""The held part of one tensor: which indices of each dimension, and how they are read and added to.

Windows, also the same window in every head, are read and written through strided views, at the
speed of memory. Only scattered indices are gathered one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, product

import torch
from torch import Tensor

from potluck.core.tensors import approach

GATHERED = 1 << 17  # scalars gathered at a time: they stay in the cache until they are written back
REMEMBERED = 64  # sets of rows
SCATTERED = 4  # combs in a dimension; for more than these, one gather is cheaper than a view of each


@dataclass(frozen=True)
class Comb:
    """Runs of equal length at equal distances."""

    start: int
    length: int
    step: int
    count: int = 1

    @property
    def span(self) -> slice:
        return slice(self.start, self.start + (self.count - 1) * self.step + self.length)


@dataclass(frozen=True)
class Kept:
    """Which indices of one dimension are held, as ascending half-open runs."""

    size: int
    runs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, size: int, indices: Sequence[int]) -> Kept:
        """The runs of ascending indices.

        >>> Kept.of(8, [0, 1, 6, 7]).runs
        ((0, 2), (6, 8))
        """
        grouped = (list(run) for _, run in groupby(enumerate(indices), lambda pair: pair[1] - pair[0]))
        return cls(size, tuple((run[0][1], run[-1][1] + 1) for run in grouped))

    @cached_property
    def count(self) -> int:
        return sum(end - start for start, end in self.runs)

    @property
    def whole(self) -> bool:
        return self.count == self.size

    @cached_property
    def indices(self) -> Tensor:
        """The held indices one by one."""
        return torch.tensor([index for run in self.runs for index in range(*run)], dtype=torch.long)

    @cached_property
    def combs(self) -> list[Comb]:
        """The runs, gathered into combs from left to right."""
        found: list[Comb] = []
        for start, end in self.runs:
            length = end - start
            last = found[-1] if found else Comb(0, 0, 0)
            step = start - last.start - (last.count - 1) * last.step
            if last.length == length and (last.count == 1 or last.step == step):
                found[-1] = Comb(last.start, length, step, last.count + 1)
            else:
                found.append(Comb(start, length, length))
        return found

    @cached_property
    def places(self) -> list[Comb]:
        """Where each comb lies in the narrow dimension: its runs side by side."""
        found: list[Comb] = []
        for comb in self.combs:
            found.append(Comb(found[-1].span.stop if found else 0, comb.length, comb.length, comb.count))
        return found

    @property
    def scattered(self) -> bool:
        return len(self.combs) > SCATTERED


Cut = tuple[Kept, ...]
"""The indices that are held of each dimension of a tensor."""


@dataclass(frozen=True)
class Box:
    """A comb for every dimension, or None where a dimension is left alone."""

    combs: tuple[Comb | None, ...]

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        return tuple(comb.span if comb else slice(None) for comb in self.combs)

    @cached_property
    def several(self) -> list[tuple[int, Comb]]:
        return [(dim, comb) for dim, comb in enumerate(self.combs) if comb and comb.count > 1][::-1]

    def view(self, tensor: Tensor) -> Tensor:
        """This part of a tensor; where a comb has several runs, one dimension becomes two."""
        part = tensor[self.slices]
        for dim, comb in self.several:
            part = part.unfold(dim, comb.length, comb.step).movedim(-1, dim + 1)
        return part


@dataclass(frozen=True, eq=False)
class HeldPart:
    """The held part of one tensor."""

    cut: Cut
    known_rows: dict[tuple[int, ...], HeldPart] = field(default_factory=dict, repr=False)

    @cached_property
    def whole(self) -> bool:
        return all(kept.whole for kept in self.cut)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(kept.count for kept in self.cut)

    @cached_property
    def scattered(self) -> list[tuple[int, Kept]]:
        return [(dim, kept) for dim, kept in enumerate(self.cut) if kept.scattered]

    def of_rows(self, rows: tuple[int, ...]) -> HeldPart:
        """The same part without the other rows; clients have the same labels round after round."""
        if rows not in self.known_rows:
            if len(self.known_rows) >= REMEMBERED:
                self.known_rows.clear()
            first, *others = self.cut
            self.known_rows[rows] = HeldPart((Kept.of(first.size, first.indices[list(rows)].tolist()), *others))
        return self.known_rows[rows]

    @cached_property
    def boxes(self) -> list[tuple[Box, Box]]:
        """Where the same scalars lie in the wide and in the narrow tensor, scattered dimensions aside."""
        combs, places = (
            [[None] if kept.whole or kept.scattered else own for kept, own in zip(self.cut, owns, strict=True)]
            for owns in ([kept.combs for kept in self.cut], [kept.places for kept in self.cut])
        )
        return [(Box(there), Box(here)) for there, here in zip(product(*combs), product(*places), strict=True)]

    def take(self, wide: Tensor) -> Tensor:
        """The held scalars; a view, if every dimension keeps one run of indices."""
        if self.whole:
            return wide
        for dim, kept in self.scattered:
            wide = wide.index_select(dim, kept.indices)
        if len(self.boxes) == 1:
            return self.boxes[0][0].view(wide).reshape(self.shape)
        narrow = wide.new_empty(self.shape)
        for there, here in self.boxes:
            here.view(narrow).copy_(there.view(wide))
        return narrow

    @cached_property
    def mesh(self) -> tuple[Tensor, ...]:
        """The held indices, to index a wide tensor with."""
        return torch.meshgrid(*(kept.indices for kept in self.cut), indexing="ij") if self.cut else ()

    @cached_property
    def table(self) -> HeldPart:
        """The same part of a tensor with at least two dimensions."""
        return HeldPart((Kept(1, ((0, 1),)),) * (2 - len(self.cut)) + self.cut)

    @cached_property
    def across(self) -> HeldPart:
        """The same part of every row."""
        rows = self.cut[0].size
        return HeldPart((Kept(rows, ((0, rows),)), *self.cut[1:]))

    def approach(self, wide: Tensor, narrow: Tensor, ratio: float | Tensor, anew: bool) -> None:
        """Move the held scalars towards narrow ones, by a ratio of narrow shape or of one row's."""
        if self.whole:
            approach(wide, narrow, ratio, anew)
        elif self.scattered:
            dim, kept = self.scattered[-1]
            for rows in few_rows(wide, len(wide)):
                held = wide[rows].index_select(dim, kept.indices)
                self.gathered.approach(held, narrow[rows], of_rows(ratio, rows), anew)
                wide[rows].index_copy_(dim, kept.indices, held)
        elif len(self.boxes) == 1 and not self.boxes[0][0].several:
            approach(self.boxes[0][0].view(wide), narrow, ratio, anew)
        else:
            for there, here in self.boxes:
                share = here.view(ratio) if isinstance(ratio, Tensor) else ratio
                approach(there.view(wide), here.view(narrow), share, anew)

    def approach_rows(
        self, wide: Tensor, held: slice | Tensor, narrow: Tensor, ratio: float | Tensor, anew: bool
    ) -> None:
        """The same with some rows of the wide tensor."""
        if isinstance(held, slice):
            self.approach(wide[held], narrow, ratio, anew)
            return
        for rows in few_rows(wide, len(held)):
            gathered = wide.index_select(0, held[rows])
            self.approach(gathered, narrow[rows], of_rows(ratio, rows), anew)
            wide.index_copy_(0, held[rows], gathered)

    @cached_property
    def gathered(self) -> HeldPart:
        """The part that is left to cut once the last scattered dimension is gathered."""
        dim, kept = self.scattered[-1]
        return HeldPart((*self.cut[:dim], Kept(kept.count, ((0, kept.count),)), *self.cut[dim + 1 :]))


def few_rows(wide: Tensor, count: int) -> Iterator[slice]:
    """`count` rows of this width, a few at a time."""
    few = max(1, GATHERED * len(wide) // wide.numel())
    return (slice(start, start + few) for start in range(0, count, few))


def of_rows(ratio: float | Tensor, rows: slice) -> float | Tensor:
    """The ratio of these rows, or the one ratio that all rows share."""
    return ratio[rows] if isinstance(ratio, Tensor) and len(ratio) > 1 else ratio
