"""Inputs and targets in arrays: (inputs, targets), each one array, or several in tuples and dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Number
from typing import Any

from torch import Tensor

from potluck.core.data import Arrays
from potluck.data.columns.checked import arrays_of
from potluck.data.columns.mapped import mapped_file
from potluck.data.columns.ragged import Ragged
from potluck.data.columns.tensors import as_tensor, plain
from potluck.data.how import How
from potluck.data.items.batching import fill_of, require_pad
from potluck.data.tables.cells import arrays


def from_columns(inputs: Any, targets: Any, how: How) -> Arrays:
    """Columns of inputs and targets; several of them in tuples and dictionaries."""
    what = "(inputs, targets)"
    require_pad(how.pad, names_in(plain(inputs)))
    return arrays_of(columns_in(inputs, "inputs", how.pad), columns_in(targets, "targets", None, target=True), what)


def names_in(tree: Any) -> list[str]:
    """The names of columns in a tree of them."""
    if isinstance(tree, tuple):
        return [name for each in tree for name in names_in(each)]
    if not isinstance(tree, dict):
        return []
    inside = [names_in(each) if isinstance(each, dict | tuple) else [key] for key, each in tree.items()]
    return [name for names in inside for name in names]


def columns_in(tree: Any, name: str, pad: Any, target: bool = False) -> Any:
    """A tree of columns: tensors, what is mapped into memory, or sequences of unequal length."""
    tree = plain(tree)
    if isinstance(tree, dict):
        return {key: columns_in(value, f"{name}['{key}']", pad, target) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(columns_in(value, f"{name}[{at}]", pad, target) for at, value in enumerate(tree))
    if isinstance(tree, Ragged):
        return tree
    if not target and hasattr(tree, "base") and (found := mapped_file(tree)) is not None:
        return found
    if is_rows(tree):
        return arrays(tree, name, fill_of(pad, name), target)
    return as_tensor(tree, name)


def is_columns(tree: Any) -> bool:
    """Whether this is an array, rows of unequal length, or several of these: what can be the inputs of all examples."""
    if isinstance(tree, Mapping | tuple):
        return bool(tree) and all(map(is_columns, tree.values() if isinstance(tree, Mapping) else tree))
    if isinstance(tree, list):
        return bool(tree) and all(isinstance(each, list | Number) or is_array(each) for each in tree)
    return isinstance(tree, Ragged) or is_array(tree)


def is_array(value: Any) -> bool:
    """Whether this has at least one dimension."""
    return value.is_nested or value.dim() > 0 if isinstance(value, Tensor) else len(getattr(value, "shape", ())) > 0


def is_rows(value: Any) -> bool:
    """Whether this has an array for every example, perhaps of unequal lengths."""
    if not isinstance(value, list) and not (hasattr(value, "dtype") and value.dtype == object and value.ndim == 1):
        return False
    return bool(len(value)) and all(isinstance(row, list) or is_array(row) for row in value)
