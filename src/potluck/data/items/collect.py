"""Reading all items once: into memory if they fit, or only for their targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from potluck.core.data import Examples
from potluck.core.errors import DataError
from potluck.core.inputs import mapped
from potluck.data.columns.checked import arrays_of
from potluck.data.columns.ragged import MADE_UP, Ragged
from potluck.data.columns.tensors import leaves_of, require_finite, usable
from potluck.data.items.asked import blamed, item_of
from potluck.data.items.batching import Batching, Collated, Stacked, require_pad
from potluck.data.items.generators import own_draws, seed_all, states
from potluck.data.items.lazy import Items, of_type
from potluck.data.preprocess import scaled_bytes

MOST_BYTES = 1 << 30  # of items that are read into memory; more stay where they are
MOST_STREAMED = 1 << 32  # of items that can be read only from the beginning to the end
SEED = 0  # of random numbers that are drawn as items are read


@dataclass
class Leaf:
    """What one place of inputs or targets has been in all items so far."""

    what: str  # "input" or "label"
    place: str
    fill: float | None
    first: Tensor
    longest: int = 0
    even: bool = True
    kept: list[Tensor] | None = field(default_factory=list)

    def add(self, tensor: Tensor, number: int) -> None:
        """The next item's; one that does not go with the first is refused."""
        if tensor.shape != self.first.shape:
            ragged = tensor.dim() and tensor.dim() == self.first.dim() and tensor.shape[1:] == self.first.shape[1:]
            if self.fill is None or not ragged:
                way_out = ", fill them up with pad=0, or put batches together with collate="
                raise DataError(
                    f"{self.what} {number}{self.place} has shape {tuple(tensor.shape)}, but {self.what} 0{self.place} "
                    f"has {tuple(self.first.shape)}; make them of one shape{way_out if self.fill is None else ''}"
                )
            self.even = False
        self.longest = max(self.longest, len(tensor) if tensor.dim() else 0)
        if self.kept is not None:
            self.kept.append(tensor)

    def require_kind(self, tensor: Tensor, number: int) -> None:
        """Refuse an item whose batches would be of another type: what is in memory has one type."""
        if usable(tensor).dtype is not usable(self.first).dtype:
            raise DataError(
                f"{self.what} {number}{self.place} is {tensor.dtype}, but {self.what} 0{self.place} is "
                f"{self.first.dtype}: they should be alike"
            )

    def column(self) -> Tensor | Ragged:
        """All that was kept."""
        assert self.kept is not None
        if self.even:
            return torch.stack(self.kept)
        assert self.fill is not None
        return Ragged.of(self.kept, self.fill)

    def example(self) -> Tensor:
        """A made-up batch of one."""
        shape = self.first.shape if self.even else (min(MADE_UP, max(1, self.longest)), *self.first.shape[1:])
        return self.first.new_zeros(1, *shape)


@dataclass
class Side:
    """The inputs of all items, or their targets."""

    form: Any
    leaves: list[Leaf]

    @classmethod
    def like(cls, tree: Any, batching: Batching, target: bool) -> Side:
        """An empty one for items like this first."""
        what, (found, form) = "label" if target else "input", tree_flatten(tree)
        if not found:
            raise DataError(f"item 0 of the data has no {what}s: there is nothing in {tree!r}")
        leaves = [Leaf(what, place, batching.fill(place, leaf, target), leaf) for place, leaf in leaves_of(tree)]
        return cls(form, leaves)

    def add(self, tree: Any, number: int) -> None:
        """The next item's."""
        found, form = tree_flatten(tree)
        if form != self.form:
            raise DataError(
                f"item {number} of the data is not like item 0: one has the {self.leaves[0].what}s "
                f"{', '.join(place or 'alone' for place, _ in leaves_of(tree))}, the other "
                f"{', '.join(leaf.place or 'alone' for leaf in self.leaves)}"
            )
        for leaf, tensor in zip(self.leaves, found, strict=True):
            leaf.add(tensor, number)

    def forget(self) -> None:
        """Keep nothing more."""
        for leaf in self.leaves:
            for number, tensor in enumerate(leaf.kept or ()):
                leaf.require_kind(tensor, number)
            leaf.kept = None

    @property
    def even(self) -> bool:
        return all(leaf.even for leaf in self.leaves)

    def columns(self) -> Any:
        return tree_unflatten([leaf.column() for leaf in self.leaves], self.form)

    def example(self) -> Any:
        return tree_unflatten([leaf.example() for leaf in self.leaves], self.form)


def from_items(data: Any, batching: Batching) -> Examples:
    """The examples of a map-style data set: in memory if they fit and are the same every time, else read on demand."""
    if not len(data):
        raise DataError("the data set is empty")
    with own_draws(SEED):
        begun = states()
        first = batching.one(item_of(data, 0), 0)
        small = bytes_of(first[0]) * len(data) <= MOST_BYTES
        seed_all(SEED)
        if not same(first, batching.one(item_of(data, 0), 0)):
            raise DataError(
                "item 0 of the data is another each time it is read, so a run could not be repeated; let the data set "
                "draw from PyTorch's, NumPy's or Python's own generators, which are seeded, not from one that it keeps"
            )
        steady = states() == begun
        seed_all(SEED)
        lazily = isinstance(batching, Collated) or not steady or not small
        items = (item_of(data, number) for number in range(len(data)))
        inputs, targets = read_all(items, batching, None if lazily else MOST_BYTES)
        steady = states() == begun
    if not steady or inputs.leaves[0].kept is None:
        known = targets.columns()
        made_up = scaled_bytes(mapped(usable, inputs.example())), tree_map(of_type, targets.example(), known)
        return Items(data, batching, known, made_up, inputs.even and targets.even)
    return arrays_of(inputs.columns(), targets.columns(), "the data set")


def from_stream(data: Iterable[Any], batching: Batching) -> Examples:
    """The examples of a data set that can be read only from its beginning to its end."""
    if isinstance(batching, Collated):
        kept: list[Any] = []
        read = 0
        for number, item in enumerate(watched(data)):
            kept.append(item)
            read += bytes_of(batching.one(item, number)[0])
            require_room(read, number)
        return from_items(kept, batching)
    with own_draws(SEED):
        inputs, targets = read_all(watched(data), batching, MOST_STREAMED, stream=True)
    return arrays_of(inputs.columns(), targets.columns(), "the data set")


def read_all(items: Iterable[Any], batching: Batching, most: int | None, stream: bool = False) -> tuple[Side, Side]:
    """All items, in order. Inputs are kept as long as they are no more than so many bytes."""
    sides: tuple[Side, Side] | None = None
    read = 0
    for number, item in enumerate(items):
        one = batching.one(item, number)
        if sides is None:
            sides = Side.like(one[0], batching, target=False), Side.like(one[1], batching, target=True)
            if isinstance(batching, Stacked):
                require_pad(
                    batching.pad, [leaf.place.rpartition("['")[2][:-2] for leaf in sides[0].leaves if leaf.place]
                )
            if most is None:
                sides[0].forget()
        for side, tree in zip(sides, one, strict=True):
            side.add(tree, number)
        read += bytes_of(one[0])
        if stream:
            require_room(read, number)
        if most is None or read > most:
            sides[0].forget()
            for leaf, tensor in zip(sides[0].leaves, tree_leaves(one[0]), strict=True):
                leaf.require_kind(tensor, number)
                require_finite(usable(tensor).unsqueeze(0), "the data set", [number], leaf.place)
    if sides is None:
        raise DataError("the data set is empty")
    return sides


def watched(data: Iterable[Any]) -> Iterator[Any]:
    """The items of a stream, or a sentence about whose code failed."""
    number, stream = 0, iter(data)
    while True:
        try:
            with blamed(f"item {number} of the data cannot be read"):
                item = next(stream)
        except StopIteration:
            return
        yield item
        number += 1


def require_room(read: int, number: int) -> None:
    """Refuse a stream that does not fit in memory, or never ends."""
    if read > MOST_STREAMED:
        raise DataError(
            f"the data can be read only from the beginning to the end, and its first {number + 1:,} items take more "
            f"than {MOST_STREAMED >> 30} GiB; give a data set with __getitem__ and __len__, or fewer items"
        )


def bytes_of(tree: Any) -> int:
    """The memory that tensors take as they are kept."""
    return sum(
        leaf.numel() * usable(leaf[..., :0] if leaf.dim() else leaf).element_size() for leaf in tree_leaves(tree)
    )


def same(one: Any, other: Any) -> bool:
    """Whether two items have the same values; what is not a number is the same as itself."""
    pairs = list(zip(tree_leaves(one), tree_leaves(other), strict=False))
    return tree_flatten(one)[1] == tree_flatten(other)[1] and all(
        a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in pairs
    )
