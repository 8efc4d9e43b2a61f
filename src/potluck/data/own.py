"""The user's own data, whatever it comes as: read and checked once, before anything trains."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from numbers import Number
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
    default_convert,
)
from torch.utils.data.dataloader import _InfiniteConstantSampler

from potluck.core.data import Arrays, Examples, Part
from potluck.core.errors import ConfigError, DataError
from potluck.data.columns.checked import arrays_of
from potluck.data.columns.mapped import mapped_file
from potluck.data.columns.ragged import Ragged
from potluck.data.columns.tensors import as_tensor, described, plain
from potluck.data.folder import from_folder
from potluck.data.how import Given, How, short
from potluck.data.items.batching import Batching, Collated, Stacked, fill_of, require_pad
from potluck.data.items.collect import MOST_BYTES, bytes_of, from_items, from_stream
from potluck.data.items.form import Form
from potluck.data.items.lazy import Items
from potluck.data.tables.cells import arrays
from potluck.data.tables.pick import Table
from potluck.data.tables.read import (
    as_torch,
    columns_of_file,
    columns_of_frame,
    columns_of_hugging_face,
    is_frame,
    is_hugging_face,
    is_read_by_item,
    is_table_file,
    require_one_split,
)

KINDS = (
    "(inputs, targets), a torch Dataset or DataLoader, a pandas or Polars frame, a CSV or Parquet file, a folder with "
    "one sub-folder of images per class, or a Hugging Face Dataset"
)
AS_IT_IS = How()
NO_SAMPLER = (
    "a DataLoader's sampler is not used: each client goes through all of its examples in an order of the run's own; "
    "give a torch.utils.data.Subset to leave examples out"
)
READY_BATCHES = (
    "data is a DataLoader with batch_size=None, whose items may be whole batches, but each client makes batches of "
    "its own, from single examples; give the data set itself, if its items are single examples, or one whose items are"
)


def examples(
    data: Any,
    *,
    target: Any = None,
    inputs: Any = None,
    owners: str | None = None,
    pad: Any = None,
    collate: Any = None,
    tokenizer: Any = None,
) -> Given:
    """Data of your own with what it does not say itself; it is taken wherever data are.

    `target` names the column or key to learn, `inputs` those that the network is given: one name, several, or a
    dictionary from the network's arguments to them. `owners` names the column that says whose each row is. `pad` is
    what sequences of unequal length are filled up with, a number or a dictionary by input. `collate` makes a batch of a
    list of items, as a DataLoader's does. `tokenizer` makes numbers of text, as those of transformers do.

    >>> given = examples([{"a": 1.0, "price": 3.0}, {"a": 2.0, "price": 5.0}], target="price")
    >>> given.examples.inputs
    {'a': tensor([1., 2.])}
    """
    return read(data, How(target, inputs, owners, pad, collate, tokenizer))


def examples_from(data: Any) -> Any:
    """Examples from whatever a user has.

    >>> import numpy as np
    >>> examples = examples_from((np.zeros((3, 28, 28), np.uint8), [0, 1, 1]))
    >>> len(examples), examples.take(torch.tensor([1]))[0].dtype
    (3, torch.float32)
    """
    return read(data, AS_IT_IS).examples


def read(data: Any, how: How) -> Given:
    """Examples from whatever a user has, and who owns them if a column says so."""
    if isinstance(data, Given):
        how.only("potluck.examples(…), which is read already,")
        return data
    if how.collate is None and (table := table_of(data, how)) is not None:
        return owned(table)
    if how.owners is not None:
        raise ConfigError(
            f"owners is {how.owners!r}, but it should have the owner of each example, by name or number: only tables "
            "have columns"
        )
    return Given(read_examples(data, how))


def owned(table: Table) -> Given:
    """The examples of a table, and who owns them."""
    owners = table.owners()
    return Given(table.examples(), None if owners is None else tuple(owners))


def table_of(data: Any, how: How) -> Table | None:
    """The data as a table, if it is one that fits in memory."""
    if is_table_file(data):
        how.only("a table", "target", "inputs", "owners", "pad", "tokenizer")
        return Table(columns_of_file(Path(data)), how, str(data))
    if is_hugging_face(data):
        require_one_split(data)
        if is_read_by_item(data):
            require_no_columns(how)
            return None
        if how.owners is None and how.tokenizer is None and not fits(data):
            return None
        return Table(columns_of_hugging_face(data), how, "the data set", alone=True)
    if is_frame(data):
        return Table(columns_of_frame(data), how)
    return None


def require_no_columns(how: How) -> None:
    """Refuse what needs whole columns, of a data set that is read row by row."""
    for name in ("owners", "tokenizer"):
        if getattr(how, name) is not None:
            raise ConfigError(
                f"{name} is {short(getattr(how, name))}, but a data set that is streamed or has a transform is read "
                "row by row; map it instead, as in data.map(…), without streaming"
            )


def fits(data: Any) -> bool:
    """Whether all rows of a Hugging Face data set fit in memory, as far as the first one tells."""
    if not len(data) or not hasattr(data, "features"):
        return True
    row = as_torch(data)[0]
    return bytes_of([cell for cell in row.values() if isinstance(cell, Tensor)]) * len(data) <= MOST_BYTES


def read_examples(data: Any, how: How) -> Examples:
    """Examples from what is no table."""
    if isinstance(data, Arrays | Items | Part):
        how.only("a set of examples")
        return data
    if isinstance(data, str | Path):
        how.only("a folder of images")
        return from_folder(Path(data))
    if isinstance(data, Mapping):
        first = next(iter(data), "")
        raise DataError(
            f"data is a dictionary with the key {first!r}, but it should be {KINDS}; if its keys are the clients, give "
            "it as clients= instead"
        )
    if callable(getattr(data, "take", None)) and callable(getattr(data, "labels", None)):
        how.only("a set of examples")
        inputs, targets = data.take(torch.arange(len(data)))
        return arrays_of(inputs, targets, "these examples")
    if isinstance(data, tuple) and len(data) == 2 and is_columns(data[0]):
        how.only("(inputs, targets)", "pad")
        return from_columns(*data, how)
    return read_items(data, how)


def read_items(data: Any, how: How) -> Examples:
    """Examples from what is asked for item by item."""
    if isinstance(data, DataLoader):
        if data.batch_size is None and data.batch_sampler is None:
            raise DataError(READY_BATCHES)
        own = data.collate_fn if data.collate_fn not in (default_collate, default_convert) else None
        if own is not None and how.collate is not None:
            raise ConfigError("collate is given, but the DataLoader has a collate_fn of its own; leave one of them out")
        if type(data.sampler) not in (SequentialSampler, RandomSampler, _InfiniteConstantSampler):
            warnings.warn(NO_SAMPLER, stacklevel=2)
        return read(data.dataset, replace(how, collate=how.collate or own)).examples
    require_pair(data)
    how.only("a data set", "target", "inputs", "pad", "collate")
    batching = batching_of(how, alone=is_hugging_face(data))
    if isinstance(data, IterableDataset) or (isinstance(data, Iterable) and is_hugging_face(data) and not sized(data)):
        return from_stream(data, batching)
    if sized(data):
        as_tensors = is_hugging_face(data) and how.collate is None and not is_read_by_item(data)
        return from_items(as_torch(data) if as_tensors else data, batching)
    raise DataError(f"data is a {type(data).__name__}; it can be {KINDS}")


def require_pair(data: Any) -> None:
    """Refuse arrays that are no pair of inputs and targets."""
    if isinstance(data, tuple | list) and data and all(is_array(each) for each in data):
        raise DataError(
            f"data is a {described(data)} arrays, but it should be (inputs, targets); several inputs are a tuple or a "
            "dictionary, as in ((x, z), targets)"
        )


def sized(data: Any) -> bool:
    """Whether items can be asked for by number."""
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def batching_of(how: How, alone: bool) -> Batching:
    """How items become batches."""
    form = Form(how.target, how.inputs, alone)
    if how.collate is None:
        return Stacked(form, how.pad)
    if how.pad is not None:
        raise ConfigError("pad and collate are both given, but collate makes the batches; leave pad out")
    return Collated(how.collate, form)


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
