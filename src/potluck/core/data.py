"""Examples, in memory or read when they are asked for, and who holds which of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from potluck.core.errors import DataError
from potluck.core.inputs import joined, mapped, tensors_of
from potluck.core.types import Batch

Prepare = Callable[[Any], Any]
Augment = Callable[[Any, torch.Generator], Any]


class Examples(Protocol):
    """Examples that can be taken by number, a batch at a time."""

    def __len__(self) -> int: ...

    def take(self, index: Tensor, rng: torch.Generator | None = None) -> Batch:
        """These examples as one batch; with a generator they are for training and may be augmented."""

    def labels(self, index: Tensor) -> Tensor:
        """The targets of these examples; the first one if an example has several."""


class Column(Protocol):
    """Something that every example has, kept in another way than as one tensor: of unequal lengths, or in a file."""

    even: bool  # whether examples are of one shape, so that batches of one size are, too

    def __len__(self) -> int: ...

    def take(self, index: Tensor) -> Tensor:
        """That of these examples, as one tensor."""

    def example(self) -> Tensor:
        """A made-up batch of one."""


@dataclass(frozen=True)
class Arrays:
    """Examples as columns, of which a batch takes rows: tensors, or what can be asked for them; perhaps several."""

    inputs: Any
    targets: Any
    prepare: Prepare | None = None  # what every example goes through, e.g. bytes to normalised floats
    augment: Augment | None = None  # what only training batches go through, before `prepare`
    names: tuple[str, ...] = ()  # of the classes in the order of their numbers, if the data came with names
    features: tuple[str, ...] = ()  # the columns of a table that the input is made of, in their order

    def __len__(self) -> int:
        return len(self.targets) if isinstance(self.targets, Tensor) else len(tree_leaves(self.targets)[0])

    @cached_property
    def even(self) -> bool:
        """Whether batches of one size are of one shape; every client of every round asks."""
        return all(isinstance(column, Tensor) or column.even for column in columns_of(self))

    def take(self, index: Tensor, rng: torch.Generator | None = None) -> Batch:
        inputs = rows(self.inputs, index)
        if rng is not None and self.augment is not None:
            inputs = self.augment(inputs, rng)
        return (self.prepare(inputs) if self.prepare is not None else inputs), rows(self.targets, index)

    def labels(self, index: Tensor) -> Tensor:
        return first_of(rows(self.targets, index))


def columns_of(examples: Arrays) -> list[Tensor | Column]:
    """All columns of inputs and targets."""
    return tree_leaves((examples.inputs, examples.targets))


def rows(columns: Any, index: Tensor) -> Any:
    """Some rows of a column, or of each of several."""
    if isinstance(columns, Tensor):
        return columns.index_select(0, index)  # copies rows, where [index] copies scalar by scalar
    return tree_map(lambda each: rows(each, index) if isinstance(each, Tensor) else each.take(index), columns)


def first_of(targets: Any) -> Tensor:
    """The target by which examples are told apart, where they have several."""
    return tensors_of(targets)[0]


@dataclass(frozen=True)
class Part:
    """Some of the examples of a larger set."""

    whole: Examples
    chosen: Tensor

    def __len__(self) -> int:
        return len(self.chosen)

    def take(self, index: Tensor, rng: torch.Generator | None = None) -> Batch:
        return self.whole.take(self.chosen.index_select(0, index), rng)

    def labels(self, index: Tensor) -> Tensor:
        return self.whole.labels(self.chosen.index_select(0, index))


@dataclass(frozen=True)
class Chain:
    """Some examples of each of several sources, one source after the other; all examples are of one shape."""

    parts: tuple[tuple[Examples, Tensor], ...]

    def __len__(self) -> int:
        return sum(len(chosen) for _, chosen in self.parts)

    def take(self, index: Tensor, rng: torch.Generator | None = None) -> Batch:
        batch: Batch = self.put_together(index, lambda source, own: source.take(own, rng))
        return batch

    def labels(self, index: Tensor) -> Tensor:
        found: Tensor = self.put_together(index, lambda source, own: source.labels(own))
        return found

    def put_together(self, index: Tensor, ask: Callable[[Examples, Tensor], Any]) -> Any:
        """What the sources give for these examples, in the order of the examples."""
        ends = torch.tensor([len(chosen) for _, chosen in self.parts]).cumsum(0)
        whose = torch.searchsorted(ends, index, right=True)
        found, places = [], []
        for number in whose.unique().tolist():
            source, chosen = self.parts[number]
            places.append((whose == number).nonzero().flatten())
            found.append(ask(source, chosen[index[places[-1]] - (ends[number] - len(chosen))]))
        if len(found) == 1:
            return found[0]
        order = torch.cat(places).argsort()
        return mapped(lambda tensor: tensor.index_select(0, order), joined(found, torch.cat))


def is_even(examples: Examples) -> bool:
    """Whether batches of one size are of one shape."""
    if isinstance(examples, Part):
        return is_even(examples.whole)
    if isinstance(examples, Chain):
        return all(is_even(source) for source, _ in examples.parts)
    return bool(getattr(examples, "even", True))


def evenly_spaced(examples: Examples, most: int) -> Examples:
    """At most so many of the examples, spread evenly over all of them."""
    if len(examples) <= most:
        return examples
    return Part(examples, torch.arange(most) * len(examples) // most)


class AnyHoldings(Protocol):
    """Who holds what, asked for one client at a time: it need not be known of clients that nobody asks for."""

    def __len__(self) -> int:
        """How many clients there are."""

    def of(self, client: int) -> Tensor:
        """The examples this client holds."""

    def size(self, client: int) -> int:
        """How many examples this client holds."""


@dataclass(frozen=True)
class Holdings:
    """Holdings in two tensors, however many clients: client i has `order[offsets[i]:offsets[i + 1]]`."""

    order: Tensor
    offsets: Tensor

    @staticmethod
    def of_lists(lists: list[Tensor]) -> Holdings:
        """Holdings from one index tensor per client."""
        sizes = torch.tensor([0, *(len(indices) for indices in lists)])
        return Holdings(torch.cat(lists) if lists else torch.empty(0, dtype=torch.long), sizes.cumsum(0))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, client: int) -> Tensor:
        """The examples this client holds."""
        return self.order[self.offsets[client] : self.offsets[client + 1]]

    def size(self, client: int) -> int:
        """How many examples this client holds."""
        start, end = self.offsets[client : client + 2].tolist()
        return int(end - start)


class Holder(Protocol):
    """Private data, asked for one client at a time."""

    def __len__(self) -> int:
        """How many clients there are."""

    def examples(self, client: int) -> Examples:
        """What a client trains on."""

    def test(self, client: int) -> Examples:
        """What a client's own model is scored on."""

    def size(self, client: int) -> int:
        """How many examples a client trains on."""

    def labels(self, client: int) -> tuple[int, ...]:
        """The classes that occur in them."""


@dataclass(frozen=True)
class Pool:
    """Everybody's data in one place, as only a simulation has them."""

    train: Examples
    holdings: AnyHoldings
    scored: Examples | None = None
    scored_by: AnyHoldings | None = None  # whose test examples these are; everybody has all if not given
    classes: bool = True  # whether targets are classes

    def __len__(self) -> int:
        return len(self.holdings)

    def examples(self, client: int) -> Examples:
        return Part(self.train, self.holdings.of(client))

    def test(self, client: int) -> Examples:
        if self.scored is None:
            raise DataError("there are no test examples to score a client's model on")
        return self.scored if self.scored_by is None else Part(self.scored, self.scored_by.of(client))

    def size(self, client: int) -> int:
        return self.holdings.size(client)

    def labels(self, client: int) -> tuple[int, ...]:
        if not self.classes:
            return ()
        found = set(self.train.labels(self.holdings.of(client)).flatten().tolist())
        return tuple(sorted(label for label in found if label >= 0))  # -100 is for what does not count
