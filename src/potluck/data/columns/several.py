"""One column out of several that lie in different places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from potluck.core.data import Column, rows
from potluck.data.columns.ragged import Ragged, joined_ragged


@dataclass(frozen=True)
class Several:
    """Some rows of each of several columns of one shape, one column after the other."""

    parts: tuple[tuple[Tensor | Column, Tensor], ...]

    @property
    def even(self) -> bool:
        return all(isinstance(column, Tensor) or column.even for column, _ in self.parts)

    def __len__(self) -> int:
        return sum(len(chosen) for _, chosen in self.parts)

    def take(self, index: Tensor) -> Tensor:
        ends = torch.tensor([len(chosen) for _, chosen in self.parts]).cumsum(0)
        whose = torch.searchsorted(ends, index, right=True)
        found: Tensor | None = None
        for number in whose.unique().tolist():
            column, chosen = self.parts[number]
            places = (whose == number).nonzero().flatten()
            own: Tensor = rows(column, chosen[index[places] - (ends[number] - len(chosen))])
            found = own.new_empty(len(index), *own.shape[1:]) if found is None else found
            found[places] = own
        return self.example()[:0] if found is None else found

    def example(self) -> Tensor:
        column, _ = self.parts[0]
        return column.new_zeros(1, *column.shape[1:]) if isinstance(column, Tensor) else column.example()


def joined_columns(columns: Sequence[Any], chosen: Sequence[Tensor]) -> Any:
    """Some rows of each of several columns as one column: in memory where all of them are."""
    if all(isinstance(column, Tensor) for column in columns):
        return gathered(columns, chosen)
    if all(isinstance(column, Tensor | Ragged) for column in columns):
        return joined_ragged(columns, chosen)
    return Several(tuple(zip(columns, chosen, strict=True)))


def gathered(columns: Sequence[Tensor], chosen: Sequence[Tensor]) -> Tensor:
    """Some rows of each of several columns, in one tensor of a type that all of them fit in; it is filled once."""
    dtype = reduce(torch.promote_types, [column.dtype for column in columns])
    found = columns[0].new_empty((sum(map(len, chosen)), *columns[0].shape[1:]), dtype=dtype)
    for column, index, place in zip(columns, chosen, found.split([len(each) for each in chosen]), strict=True):
        torch.index_select(column.to(dtype), 0, index, out=place)
    return found
