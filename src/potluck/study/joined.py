"""The examples of all clients as one set: in memory what is there, the rest read when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from potluck.core.data import Arrays, Chain, Examples, Part, columns_of, is_even
from potluck.core.errors import DataError
from potluck.data.columns.several import Several, joined_columns
from potluck.data.items.lazy import Concatenated, Items

Parts = dict[str, tuple[Examples, Tensor]]
"""Some examples of a source, by client."""


def joined(parts: Mapping[str, tuple[Examples, Tensor]]) -> Examples:
    """The examples of all clients, one client after the other; tensors are filled once."""
    found = put_together(parts)
    several = isinstance(found, Arrays) and any(isinstance(column, Several) for column in columns_of(found))
    if (several or isinstance(found, Chain)) and not is_even(found):
        raise DataError(
            "clients have sequences of unequal length in different forms: in memory, in mapped files, or as items of a "
            "data set, which are filled up by themselves; give all of them in one form, and the same pad= or collate="
        )
    return found


def put_together(parts: Mapping[str, tuple[Examples, Tensor]]) -> Examples:
    """The same, whether or not a batch could have examples of several clients."""
    sources, chosen = [source for source, _ in parts.values()], [chosen for _, chosen in parts.values()]
    first = sources[0]
    if all(source is first for source in sources) and not in_memory(first):
        return Part(first, torch.cat(chosen))
    arrays = [source for source in sources if isinstance(source, Arrays)]
    if len(arrays) == len(sources):
        inputs = joined_trees([source.inputs for source in arrays], chosen)
        return replace(arrays[0], inputs=inputs, targets=joined_trees([source.targets for source in arrays], chosen))
    items = [source for source in sources if isinstance(source, Items)]
    if len(items) == len(sources) and all(source.batching == items[0].batching for source in items):
        datasets = Concatenated(tuple((source.dataset, index) for source, index in zip(items, chosen, strict=True)))
        known = joined_trees([source.known for source in items], chosen)
        return replace(items[0], dataset=datasets, known=known, even=all(source.even for source in items))
    return Chain(tuple(parts.values()))


def joined_trees(trees: list[Any], chosen: list[Tensor]) -> Any:
    """Some rows of the columns of several trees of one form, as columns of one tree."""
    return tree_map(lambda *columns: joined_columns(columns, chosen), trees[0], *trees[1:])


def in_memory(examples: Examples) -> bool:
    """Whether examples are tensors, and nothing else."""
    return isinstance(examples, Arrays) and all(isinstance(each, Tensor) for each in columns_of(examples))
