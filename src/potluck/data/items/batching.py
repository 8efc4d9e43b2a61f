"""From items to batches: by stacking them, filled up where asked for, or by a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from potluck.core.errors import ConfigError, DataError
from potluck.core.goals.classes import IGNORED
from potluck.data.columns.ragged import Ragged
from potluck.data.columns.tensors import as_input, as_tensor, leaves_of
from potluck.data.items.asked import blamed
from potluck.data.items.form import Form

RETURNED = "what collate returns"
Divided = tuple[Any, Any]
"""Inputs and targets, of an item or of a batch."""


class Batching(Protocol):
    """How batches are made of items."""

    def one(self, item: Any, number: int) -> Divided:
        """The inputs and targets of one item, as tensors without a dimension for the batch."""

    def batch(self, items: Sequence[Any], numbers: Sequence[int]) -> Divided:
        """The inputs and targets of several items."""

    def fill(self, place: str, first: Tensor, target: bool) -> float | None:
        """What unequal lengths are filled up with at a place of the inputs or targets; None if they are refused."""


@dataclass(frozen=True)
class Stacked:
    """Items are stacked; sequences of unequal length are filled up to the longest."""

    form: Form = field(default_factory=Form)
    pad: Any = None  # a number for all inputs, or numbers by name

    def one(self, item: Any, number: int) -> Divided:
        inputs, targets = self.form.divided(item, f"item {number} of the data")
        return named(inputs, "input", number, as_input), named(targets, "label", number, as_tensor)

    def batch(self, items: Sequence[Any], numbers: Sequence[int]) -> Divided:
        read = [self.one(item, number) for item, number in zip(items, numbers, strict=True)]
        inputs, targets = (self.stacked([each[at] for each in read], target=at == 1) for at in (0, 1))
        return inputs, targets

    def stacked(self, trees: Sequence[Any], target: bool) -> Any:
        """Trees of one form as one; what is of unequal length is filled up."""
        leaves, form = tree_flatten(trees[0])
        columns = zip(*(tree_flatten(tree)[0] for tree in trees), strict=True)
        places = [place for place, _ in leaves_of(trees[0])] if leaves else []
        found = [self.joined(list(each), place, target) for each, place in zip(columns, places, strict=True)]
        return tree_unflatten(found, form)

    def joined(self, tensors: list[Tensor], place: str, target: bool) -> Tensor:
        """Tensors of one place as one."""
        if all(tensor.shape == tensors[0].shape for tensor in tensors):
            return torch.stack(tensors)
        fill = self.fill(place, tensors[0], target)
        assert fill is not None  # shapes were looked at when all items were read
        return Ragged.of(tensors, fill).take(torch.arange(len(tensors)))

    def fill(self, place: str, first: Tensor, target: bool) -> float | None:
        if target:
            return None if first.is_floating_point() else IGNORED
        return fill_of(self.pad, place)


@dataclass(frozen=True)
class Collated:
    """A function of the user's makes batches; what it returns is divided."""

    collate: Callable[[list[Any]], Any]
    form: Form = field(default_factory=Form)

    def one(self, item: Any, number: int) -> Divided:
        inputs, targets = self.batch([item], [number])
        return tree_map(lambda tensor: tensor[0], inputs), tree_map(lambda tensor: tensor[0], targets)

    def batch(self, items: Sequence[Any], numbers: Sequence[int]) -> Divided:
        with blamed(f"collate fails on {counted(items)}"):
            made = self.collate(list(items))
        inputs, targets = (named(tree, RETURNED, None, as_tensor) for tree in self.form.divided(made, RETURNED))
        for place, tensor in leaves_of((inputs, targets)):
            if tensor.dim() == 0 or len(tensor) != len(items):
                raise DataError(
                    f"collate makes a tensor of shape {tuple(tensor.shape)} of {counted(items)} (at {place}), but "
                    "batches should have the examples in the first dimension, and each item should be one"
                )
        return inputs, targets

    def fill(self, place: str, first: Tensor, target: bool) -> float | None:
        return IGNORED if target and not first.is_floating_point() else 0  # the function sees to the inputs


def counted(items: Sequence[Any]) -> str:
    """How many items there are."""
    return f"{len(items)} {'items' if len(items) > 1 else 'item'}"


def named(tree: Any, what: str, number: int | None, read: Callable[[Any, str], Tensor]) -> Any:
    """A tree with everything in it read as tensors; errors name the place."""
    leaves, form = tree_flatten(tree, is_leaf=lambda each: isinstance(each, list))
    places = [place for place, _ in leaves_of(tree_unflatten([0] * len(leaves), form))]
    count = "" if number is None else f" {number}"
    found = [read(leaf, f"{what}{count}{place}") for leaf, place in zip(leaves, places, strict=True)]
    return tree_unflatten(found, form)


def fill_of(pad: Any, place: str) -> float | None:
    """What the input at this place is filled up with.

    >>> fill_of({"ids": 7}, "['ids']"), fill_of(0, ""), fill_of({"ids": 7}, "['mask']")
    (7, 0, None)
    """
    if not isinstance(pad, Mapping):
        number: float | None = pad
        return number
    return pad.get(place.rpartition("['")[2].removesuffix("']"))


def require_pad(pad: Any, names: Sequence[str]) -> None:
    """Refuse a pad for an input that does not exist."""
    for name in pad if isinstance(pad, Mapping) else ():
        if name not in names:
            raise ConfigError(f"pad has {name!r}, but the inputs are {', '.join(names) or 'without names'}")
