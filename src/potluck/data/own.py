"""The user's own data, whatever it comes as, to `Arrays`: read and checked once, before anything trains.

Inputs that are bytes become floats between 0 and 1, a batch at a time; floats become float32;
other whole numbers (tokens) become int64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.core.data import Arrays
from potluck.core.errors import DataError
from potluck.data.preprocess import Scale
from potluck.data.readers.images import images_in, stack_files

LABEL_COLUMNS = ("label", "labels", "target", "targets", "y")
KINDS = (
    "(inputs, targets), a torch.utils.data.Dataset of (input, label) pairs, "
    "a folder with one sub-folder of images per class, or a Hugging Face Dataset"
)


def examples_from(data: Any) -> Arrays:
    """Examples from arrays or tensors, a torch or Hugging Face data set, or a folder of images.

    >>> import numpy as np
    >>> examples = examples_from((np.zeros((3, 28, 28), np.uint8), [0, 1, 1]))
    >>> len(examples), examples.take(torch.tensor([1]))[0].dtype
    (3, torch.float32)
    """
    if isinstance(data, Arrays):
        checked(data.inputs, data.targets, "these examples")
        return data
    if isinstance(data, str | Path):
        return from_folder(Path(data))
    if hasattr(data, "column_names") and hasattr(data, "with_format"):
        return from_columns(data)
    if isinstance(data, Mapping):
        first = next(iter(data), "")
        raise DataError(
            f"data is a dictionary with the key {first!r}, but it should be {KINDS}; if its keys are the clients, give "
            "it as clients= instead"
        )
    if callable(getattr(data, "take", None)) and callable(getattr(data, "labels", None)):
        inputs, targets = data.take(torch.arange(len(data)))
        return checked(inputs, targets, "these examples")
    if isinstance(data, tuple) and len(data) == 2 and hasattr(data[0], "shape"):
        return checked(as_tensor(data[0], "inputs"), as_tensor(data[1], "targets"), "(inputs, targets)")
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return from_items(data)
    raise DataError(f"data is a {type(data).__name__}; it can be {KINDS}")


def from_items(data: Any) -> Arrays:
    """The pairs of a map-style data set, each asked for once and stacked."""
    inputs, targets = [], []
    for number in range(len(data)):
        item = data[number]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"item {number} of the data is a {described(item)}, not an (input, label) pair")
        inputs.append(as_input(item[0], f"input {number}"))
        targets.append(as_tensor(item[1], f"label {number}"))
    return checked(stacked(inputs, "input"), stacked(targets, "label"), "the data set")


def from_columns(data: Any) -> Arrays:
    """A Hugging Face data set of two columns, one of them the label."""
    if isinstance(data.column_names, dict):
        splits = list(data.column_names)
        raise DataError(f"the data has splits {', '.join(splits)}; pass one of them, such as data['{splits[0]}']")
    columns = list(data.column_names)
    labels = [column for column in columns if column in LABEL_COLUMNS]
    if len(columns) != 2 or len(labels) != 1:
        raise DataError(
            f"the data set has columns {', '.join(map(str, columns))}; leave it two, the input and "
            f"'{LABEL_COLUMNS[0]}' (select_columns and rename_column do that)"
        )
    (inputs,) = (column for column in columns if column not in labels)
    rows = data.with_format("torch")[:]
    return checked(as_batch(rows[inputs], inputs), as_batch(rows[labels[0]], labels[0]), "the data set")


def from_folder(folder: Path) -> Arrays:
    """A folder with one sub-folder of images per class; classes are numbered in order of their names."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}")
    classes = sorted(place for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))
    files = [(path, label) for label, place in enumerate(classes) for path in images_in(place)]
    if not files:
        raise DataError(f"{folder} holds no images: it needs one sub-folder per class with image files in it")
    labels = torch.tensor([label for _, label in files])
    return checked(stack_files([path for path, _ in files]), labels, str(folder))


def checked(inputs: Tensor, targets: Tensor, what: str) -> Arrays:
    """Inputs and targets that fit each other, in types that a network can use."""
    if targets.dim() == 0 or inputs.dim() == 0 or len(inputs) != len(targets):
        raise DataError(f"{what}: inputs of shape {tuple(inputs.shape)} but targets of shape {tuple(targets.shape)}")
    if not len(targets):
        raise DataError(f"{what}: there are no examples")
    if targets.is_floating_point() or targets.is_complex() or targets.dtype is torch.bool:
        several = " (several labels for one example are not supported)" if targets.dim() > 1 else ""
        raise DataError(f"{what}: labels are {targets.dtype}, not whole numbers; number the classes from 0{several}")
    if int(targets.min()) < 0:
        raise DataError(f"{what}: label {int(targets.min())} is negative; number the classes from 0")
    if inputs.dtype is torch.uint8:
        return Arrays(inputs.contiguous(), targets.long(), prepare=Scale())
    if not inputs.is_floating_point():
        return Arrays(inputs.long(), targets.long())
    inputs = inputs.float().contiguous()
    if not torch.isfinite(inputs).all():
        first = int((~torch.isfinite(inputs)).reshape(len(inputs), -1).any(1).nonzero()[0])
        raise DataError(f"{what}: input {first} has values that are not finite; remove it, or replace them")
    return Arrays(inputs, targets.long())


def as_tensor(value: Any, what: str) -> Tensor:
    """A tensor from a tensor, an array, a list or a number."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    try:
        array = np.asarray(value)
        wide = array.dtype.kind == "u" and array.dtype.itemsize > 1  # types that PyTorch hardly knows
        return torch.from_numpy(array.astype(np.int64 if wide else array.dtype.newbyteorder("="), order="C"))
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} is a {described(value)}, which is not an array of numbers of one shape") from error


def as_input(value: Any, what: str) -> Tensor:
    """One input; an image object (of Pillow's) becomes bytes with channels first."""
    if hasattr(value, "getbands"):
        pixels = as_tensor(np.array(value), what)
        return pixels.unsqueeze(0) if pixels.dim() == 2 else pixels.permute(2, 0, 1)
    return as_tensor(value, what)


def as_batch(column: Any, name: str) -> Tensor:
    """A column as one tensor; it comes as a list when its rows are not known to be of one shape."""
    if isinstance(column, list):
        return stacked([as_input(row, f"'{name}' of row {number}") for number, row in enumerate(column)], f"'{name}'")
    return as_tensor(column, f"column '{name}'")


def stacked(tensors: Sequence[Tensor], what: str) -> Tensor:
    """All in one tensor, if they are of one shape."""
    if not tensors:
        raise DataError("the data set is empty")
    for number, tensor in enumerate(tensors):
        if tensor.shape != tensors[0].shape:
            raise DataError(
                f"{what} {number} has shape {tuple(tensor.shape)}, but {what} 0 has {tuple(tensors[0].shape)}; "
                "make them of one shape first"
            )
    return torch.stack(list(tensors))


def described(value: Any) -> str:
    """A value in an error message: its type, and its length if it has one."""
    length = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    return f"{type(value).__name__}{length}"
