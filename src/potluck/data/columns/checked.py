"""Columns of inputs and targets that go together, as examples."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from potluck.core.data import Arrays, Prepare
from potluck.core.errors import DataError
from potluck.data.columns.ragged import Ragged
from potluck.data.columns.tensors import leaves_of, require_finite, usable
from potluck.data.preprocess import Scale, ScaleBytes


def arrays_of(inputs: Any, targets: Any, what: str, names: tuple[str, ...] = ()) -> Arrays:
    """Inputs and targets that fit each other, in types that networks use; lazy ones are checked as they are read."""
    columns = [*leaves_of(inputs), *leaves_of(targets)]
    if any(isinstance(column, Tensor) and column.dim() == 0 for _, column in columns) or (
        len({len(column) for _, column in columns}) != 1
    ):
        raise DataError(f"{what}: inputs of shape {shapes_of(inputs)} but targets of shape {shapes_of(targets)}")
    if not len(columns[0][1]):
        raise DataError(f"{what}: there are no examples")
    inputs = tree_map(in_use, inputs)
    for place, column in leaves_of(inputs):
        if isinstance(column, Tensor):
            require_finite(column, what, where=place)
        elif isinstance(column, Ragged) and not bool(torch.isfinite(column.values).all()):
            at = int((~torch.isfinite(column.values)).flatten(1 if column.values.dim() > 1 else 0).nonzero()[0][0])
            number = int(torch.searchsorted(column.offsets, at, right=True)) - 1
            require_finite(column.take(torch.tensor([number])), what, [number], place)
    if isinstance(inputs, Tensor) and inputs.dtype is torch.bool:
        inputs = inputs.long()  # several inputs may have masks among them; a single one is what a network reads
    return Arrays(inputs, targets, prepare=prepare_for(inputs), names=names)


def in_use(column: Any) -> Any:
    """A column in the type that networks use."""
    if isinstance(column, Tensor):
        return usable(column)
    return column.converted(usable) if isinstance(column, Ragged) else column


def prepare_for(inputs: Any) -> Prepare | None:
    """What batches of these columns go through: bytes become floats."""
    types = [column.dtype if isinstance(column, Tensor) else column.example().dtype for _, column in leaves_of(inputs)]
    if torch.uint8 not in types:
        return None
    return Scale() if isinstance(inputs, Tensor) or not isinstance(inputs, tuple | dict) else ScaleBytes()


def shapes_of(tree: Any) -> str:
    """The shape of a column, or of each of several."""
    found = [
        f"{place and place + ' '}{tuple(column.shape) if hasattr(column, 'shape') else f'({len(column)}, …)'}"
        for place, column in leaves_of(tree)
    ]
    return ", ".join(found)
