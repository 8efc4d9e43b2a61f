"""From whatever a user has to tensors in the types that networks use.

Bytes stay bytes, and become floats between 0 and 1 a batch at a time; floats become float32; truth values stay what
they are; other whole numbers (tokens) become int64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten_with_path

from potluck.core.errors import DataError

MOST = 2**63 - 1
WAYS_OUT = {
    "nested": "a list of tensors, one for each example, which pad= fills up",
    "sparse": "dense with to_dense()",
    "complex": "real, with the two parts as channels",
}


def as_tensor(value: Any, what: str) -> Tensor:
    """A tensor from a tensor, an array, a list or a number."""
    if isinstance(value, Tensor):
        if value.is_nested or value.layout is not torch.strided or value.is_complex():
            kind = "nested" if value.is_nested else "complex" if value.is_complex() else "sparse"
            raise DataError(f"{what} is a {kind} tensor; make it {WAYS_OUT[kind]}")
        return value.detach().cpu()
    try:
        array = np.asarray(value)
        if array.dtype.kind == "O":
            array = np.asarray(array.tolist())  # of mere numbers, or of arrays of one shape
    except (TypeError, ValueError) as error:
        raise not_numbers(value, what) from error
    if array.dtype.kind not in "buif":
        raise not_numbers(value, what)
    if np.ma.is_masked(value):
        raise DataError(f"{what} is an array with masked values; fill them, or leave these examples out")
    wide = array.dtype.kind == "u" and array.dtype.itemsize > 1  # types that PyTorch hardly knows
    if wide and array.size and int(array.max()) > MOST:
        raise DataError(f"{what} has the number {int(array.max())}, but {MOST} is the largest that PyTorch has")
    return torch.from_numpy(array.astype(np.int64 if wide else array.dtype.newbyteorder("="), order="C"))


def not_numbers(value: Any, what: str) -> DataError:
    """Why something is no array of numbers, and what to do."""
    if getattr(getattr(value, "dtype", None), "kind", "") == "c":
        return DataError(f"{what} is a complex array; make it {WAYS_OUT['complex']}")
    if has_text(value):
        return DataError(f"{what} has text, but it should have numbers: number classes from 0, and tokenise sentences")
    return DataError(f"{what} is a {described(value)}, which is not an array of numbers of one shape")


def has_text(value: Any) -> bool:
    """Whether this is text, or an array or list of it."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, str) or getattr(getattr(value, "dtype", None), "kind", "") in ("U", "S", "T")


def as_input(value: Any, what: str) -> Tensor:
    """One input; an image object (of Pillow's) becomes bytes with channels first."""
    if hasattr(value, "getbands"):
        pixels = as_tensor(np.array(value), what)
        return pixels.unsqueeze(0) if pixels.dim() == 2 else pixels.permute(2, 0, 1)
    return as_tensor(value, what)


def usable(tensor: Tensor) -> Tensor:
    """Inputs in the type that networks use."""
    if tensor.dtype in (torch.uint8, torch.bool):
        return tensor.contiguous()
    return (tensor.float() if tensor.is_floating_point() else tensor.long()).contiguous()


def require_finite(tensor: Tensor, what: str, numbers: Sequence[int] | None = None, where: str = "") -> None:
    """Refuse inputs of which some are not numbers; they are examples 0, 1, … unless their numbers are given."""
    if not tensor.is_floating_point() or bool(torch.isfinite(tensor).all()):
        return
    row = int((~torch.isfinite(tensor)).reshape(len(tensor), -1).any(1).nonzero()[0])
    number = row if numbers is None else numbers[row]
    raise DataError(f"{what}: input {number}{where} has values that are not finite; remove it, or replace them")


def leaves_of(tree: Any) -> list[tuple[str, Any]]:
    """What a tree of tuples and dictionaries holds, each with its place as Python would write it.

    >>> leaves_of(({"ids": 1}, 2))
    [("[0]['ids']", 1), ('[1]', 2)]
    """
    return [(keystr(path), leaf) for path, leaf in tree_flatten_with_path(tree)[0]]


def plain(tree: Any) -> Any:
    """A tree of plain tuples and dictionaries, whatever kinds of them it was made of."""
    if isinstance(tree, Mapping):
        return {str(key): plain(value) for key, value in tree.items()}
    return tuple(plain(value) for value in tree) if isinstance(tree, tuple) else tree


def described(value: Any) -> str:
    """A value in an error message: its type, and its length if it has one."""
    length = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    return f"{type(value).__name__}{length}"
