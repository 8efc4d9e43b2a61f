"""Sequences of unequal length, one after the other in memory, filled up to the longest of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from potluck.core.errors import DataError
from potluck.core.goals.classes import IGNORED

MADE_UP = 32  # positions of a made-up example, at most


@dataclass(frozen=True)
class Ragged:
    """A sequence for every example: example i has `values[offsets[i]:offsets[i + 1]]`.

    >>> column = Ragged.of([torch.tensor([1, 2, 3]), torch.tensor([4])], fill=0)
    >>> column.take(torch.tensor([1, 0])).tolist()
    [[4, 0, 0], [1, 2, 3]]
    """

    values: Tensor  # (all positions, …)
    offsets: Tensor  # (examples + 1,)
    fill: float = 0  # what stands behind the end of a sequence

    even: ClassVar[bool] = False

    @classmethod
    def of(cls, sequences: Sequence[Tensor], fill: float) -> Ragged:
        """A column of these sequences, which are alike but for their length."""
        lengths = torch.tensor([0, *(len(each) for each in sequences)])
        return cls(able_to_hold(torch.cat(list(sequences)), fill), lengths.cumsum(0), fill)

    @classmethod
    def of_even(cls, tensor: Tensor, fill: float) -> Ragged:
        """A column whose sequences happen to be of one length."""
        return cls(tensor.flatten(0, 1), torch.arange(len(tensor) + 1) * tensor.shape[1], fill)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, index: Tensor) -> Tensor:
        starts = self.offsets.index_select(0, index)
        lengths = self.offsets.index_select(0, index + 1) - starts
        positions = torch.arange(int(lengths.max()) if len(index) else 0)
        there = positions < lengths.unsqueeze(1)  # (examples, positions)
        found = self.values.new_full((*there.shape, *self.values.shape[1:]), self.fill)
        found[there] = self.values[(starts.unsqueeze(1) + positions)[there]]
        return found

    def example(self) -> Tensor:
        longest = int((self.offsets[1:] - self.offsets[:-1]).max()) if len(self) else 0
        return self.values.new_zeros(1, min(MADE_UP, max(1, longest)), *self.values.shape[1:])

    def rows(self, index: Tensor) -> Ragged:
        """The sequences of some examples."""
        starts, lengths = self.offsets[index], self.offsets[index + 1] - self.offsets[index]
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        within = torch.arange(int(offsets[-1])) - offsets[:-1].repeat_interleave(lengths)
        return replace(self, values=self.values[starts.repeat_interleave(lengths) + within], offsets=offsets)

    def converted(self, change: Callable[[Tensor], Tensor]) -> Ragged:
        """The same with other values."""
        return replace(self, values=change(self.values))


def able_to_hold(values: Tensor, fill: float) -> Tensor:
    """The values in a type that has this number; bytes would have another in its place without a word.

    >>> able_to_hold(torch.tensor([True]), IGNORED)
    tensor([1])
    """
    if fill == IGNORED and not values.is_floating_point():
        return values.long()
    if not fits(fill, values.dtype):
        kind = str(values.dtype).removeprefix("torch.")
        raise DataError(
            f"pad is {fill}, but sequences of {kind} cannot be filled up with that; give a number that they could have"
        )
    return values


def fits(fill: float, dtype: torch.dtype) -> bool:
    """Whether a type has a number, as near as it has any."""
    if dtype.is_floating_point:
        return abs(fill) <= torch.finfo(dtype).max
    if dtype is torch.bool:
        return fill in (0, 1)
    return float(fill).is_integer() and torch.iinfo(dtype).min <= fill <= torch.iinfo(dtype).max


def joined_ragged(columns: Sequence[Ragged | Tensor], chosen: Sequence[Tensor]) -> Ragged:
    """Some sequences of each of several columns, in one column."""
    fill, *others = dict.fromkeys(column.fill for column in columns if isinstance(column, Ragged))
    if others:
        raise DataError(f"sequences of clients are filled up with {fill} and with {others[0]}; give all the same pad=")
    parts = [
        (column if isinstance(column, Ragged) else Ragged.of_even(column, fill)).rows(index)
        for column, index in zip(columns, chosen, strict=True)
    ]
    ends = torch.tensor([0, *(len(part.values) for part in parts)]).cumsum(0)
    starts = [part.offsets[:-1] + end for part, end in zip(parts, ends, strict=False)]
    return Ragged(torch.cat([part.values for part in parts]), torch.cat([*starts, ends[-1:]]), fill)
