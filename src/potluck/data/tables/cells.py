"""The cells of one column of a table: what kind they are, and as tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from potluck.core.errors import DataError
from potluck.core.goals.classes import IGNORED
from potluck.data.columns.ragged import Ragged
from potluck.data.columns.tensors import as_input, as_tensor, described, usable

Cells = Any
"""An array, a tensor or a list with a row's cell in each place."""

Kind = Literal["number", "text", "array", "other"]


def kind_of(cells: Cells) -> Kind:
    """What the cells are; a number may be a truth value, an array may have any number of dimensions."""
    if isinstance(cells, Tensor):
        return "number" if cells.dim() == 1 else "array"
    if isinstance(cells, np.ndarray) and cells.dtype.kind != "O":
        if cells.dtype.kind in "buif":
            return "number" if cells.ndim == 1 else "array"
        return "text" if cells.dtype.kind in "UST" else "other"
    first = next((cell for cell in cells if not is_gap(cell)), 0.0)
    if isinstance(first, str):
        return "text"
    if (
        hasattr(first, "getbands")
        or isinstance(first, list | tuple | np.ndarray | Tensor)
        or hasattr(first, "to_numpy")
    ):
        scalar = isinstance(first, np.ndarray | Tensor) and first.ndim == 0
        return "number" if scalar else "array"
    return "number" if isinstance(first, int | float | np.number | np.bool_) or hasattr(first, "as_tuple") else "other"


def is_gap(cell: Any) -> bool:
    """Whether there is nothing in a cell: None, NaN, or what a frame has in their place."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float | np.floating) and math.isnan(cell)


def require_filled(cells: Cells, name: str) -> None:
    """Refuse a column in which a row has no value."""
    if isinstance(cells, Tensor):
        cells = cells.numpy()
    if isinstance(cells, np.ndarray) and cells.dtype.kind != "O":
        wrong = np.isnat(cells) if cells.dtype.kind in "Mm" else np.isnan(cells) if cells.dtype.kind == "f" else None
        gaps = [] if wrong is None else np.flatnonzero(wrong.reshape(len(cells), -1).any(1))[:1].tolist()
    else:
        gaps = [row for row, cell in enumerate(cells) if is_gap(cell)][:1]
    if gaps:
        raise DataError(
            f"column '{name}' has no value in row {gaps[0]} (rows count from 0); fill it, or leave the row out"
        )


def numbers(cells: Cells, name: str) -> Tensor:
    """A column of numbers, a row's in each place, as they are."""
    require_filled(cells, name)
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "O":
        cells = [
            cell if isinstance(cell, bool | np.bool_) else float(cell) if hasattr(cell, "as_tuple") else cell
            for cell in cells
        ]
    found = as_tensor(cells, f"column '{name}'")
    if found.is_floating_point() and not bool(torch.isfinite(found.float()).all()):
        row = int((~torch.isfinite(found.float())).nonzero()[0][0])
        raise DataError(
            f"column '{name}' has {float(found[row]):g} in row {row} (rows count from 0), which is not finite"
        )
    return found


def features(columns: Sequence[tuple[str, Cells]]) -> Tensor:
    """Columns of numbers as one tensor (rows, features)."""
    return torch.stack([numbers(cells, name).float() for name, cells in columns], dim=1)


def arrays(cells: Cells, name: str, fill: float | None, target: bool = False) -> Tensor | Ragged:
    """A column of arrays, stacked; of unequal lengths if there is something to fill them up with."""
    if isinstance(cells, Tensor) or (isinstance(cells, np.ndarray) and cells.dtype.kind != "O"):
        return as_tensor(cells, f"column '{name}'")
    require_filled(cells, name)
    rows = [array_of(cell, f"'{name}' of row {row}") for row, cell in enumerate(cells)]
    if target and not rows[0].is_floating_point():
        fill = IGNORED
    for row, found in enumerate(rows):
        alike = found.dim() == rows[0].dim() and (found.shape[1:] == rows[0].shape[1:])
        if found.shape != rows[0].shape and (fill is None or not alike):
            raise DataError(
                f"'{name}' {row} has shape {tuple(found.shape)}, but '{name}' 0 has {tuple(rows[0].shape)}; make them "
                "of one shape, fill them up with pad=0, or put batches together with collate="
            )
    if all(row.shape == rows[0].shape for row in rows):
        return torch.stack(rows)
    assert fill is not None
    return Ragged.of(rows, fill)


def array_of(cell: Any, what: str) -> Tensor:
    """The array in a cell."""
    found = as_input(cell.to_numpy() if hasattr(cell, "to_numpy") else cell, what)
    return usable(found) if found.numel() else found.long()  # an empty list says nothing of its type


def texts(cells: Cells, name: str) -> list[str]:
    """A column of text."""
    require_filled(cells, name)
    for row, cell in enumerate(cells):
        if not isinstance(cell, str):
            raise DataError(
                f"column '{name}' has a {described(cell)} in row {row} (rows count from 0), but text is needed in each"
            )
    return [str(cell) for cell in cells]


def numbered(cells: Cells, name: str) -> tuple[Tensor, tuple[str, ...]]:
    """Classes by name as numbers, in the order of their names.

    >>> numbered(["dog", "cat", "dog"], "animal")
    (tensor([1, 0, 1]), ('cat', 'dog'))
    """
    # CSV files have no other gap for text than none at all.
    require_filled([None if isinstance(cell, str) and not cell else cell for cell in cells], name)
    found = texts(cells, name)
    names = tuple(sorted(set(found)))
    position = {each: at for at, each in enumerate(names)}
    return torch.tensor([position[each] for each in found]), names
