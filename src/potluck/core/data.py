"""Examples in memory, the batches that clients train on, and who holds which examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from potluck.core.errors import DataError
from potluck.core.types import Batch

Prepare = Callable[[Tensor], Tensor]
Augment = Callable[[Tensor, torch.Generator], Tensor]


class Examples(Protocol):
    """Examples that can be taken by number, a batch at a time."""

    def __len__(self) -> int: ...

    def take(self, index: Tensor, rng: torch.Generator | None = None) -> Batch:
        """These examples as one batch; with a generator they are for training and may be augmented."""

    def labels(self, index: Tensor) -> Tensor:
        """The targets of these examples."""


@dataclass(frozen=True)
class Arrays:
    """Examples as two contiguous tensors: a batch is one index into both."""

    inputs: Tensor
    targets: Tensor
    prepare: Prepare | None = None  # what every example goes through, e.g. bytes to normalised floats
    augment: Augment | None = None  # what only training batches go through, before `prepare`

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, index: Tensor, rng: torch.Generator | None = None) -> Batch:
        inputs = self.inputs.index_select(0, index)  # copies rows, where [index] copies scalar by scalar
        if rng is not None and self.augment is not None:
            inputs = self.augment(inputs, rng)
        return (self.prepare(inputs) if self.prepare is not None else inputs), self.targets.index_select(0, index)

    def labels(self, index: Tensor) -> Tensor:
        return self.targets.index_select(0, index)


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


def evenly_spaced(examples: Examples, most: int) -> Examples:
    """At most so many of the examples, spread evenly over all of them."""
    if len(examples) <= most:
        return examples
    return Part(examples, torch.arange(most) * len(examples) // most)


def batch_sizes(count: int, size: int) -> list[int]:
    """How many examples the batches of an epoch have.

    A single leftover example joins the batch before it: batch norm cannot train on one. Batches that are asked to be of
    one example stay so.

    >>> batch_sizes(22, 10), batch_sizes(21, 10)
    ([10, 10, 2], [10, 11])
    """
    sizes = [min(size, count - start) for start in range(0, count, size)]
    if size > 1 and len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [size + 1]
    return sizes


def batches(examples: Examples, size: int, epochs: int, rng: torch.Generator) -> Iterator[Batch]:
    """Shuffled training batches, every example once per epoch."""
    sizes = batch_sizes(len(examples), size)
    for _ in range(epochs if sizes else 0):
        for part in torch.randperm(len(examples), generator=rng).split(sizes):
            yield examples.take(part, rng)


def stacked_batches(drawn: Sequence[tuple[Examples, torch.Generator]], size: int, epochs: int) -> Iterator[Batch]:
    """The batches of several clients with equally many examples, a client per row."""
    pool = common_pool([source for source, _ in drawn])
    if pool is None:
        streams = (batches(source, size, epochs, rng) for source, rng in drawn)
        for each in zip(*streams, strict=True):
            yield torch.stack([inputs for inputs, _ in each]), torch.stack([targets for _, targets in each])
        return
    whole, held = pool
    clients, sizes = len(held), batch_sizes(len(held[0]), size)
    for _ in range(epochs if sizes else 0):
        orders = (torch.randperm(sum(sizes), generator=rng) for _, rng in drawn)
        chosen = torch.stack([own.index_select(0, order) for own, order in zip(held, orders, strict=True)])
        for index in chosen.split(sizes, dim=1):
            inputs, targets = whole.take(index.flatten())
            yield inputs.unflatten(0, (clients, -1)), targets.unflatten(0, (clients, -1))


def common_pool(sources: Sequence[Examples]) -> tuple[Arrays, list[Tensor]] | None:
    """The arrays that all of these are parts of, and which of their examples each has, if that is how they are stored.

    Augmented examples are left out: every client draws its own random numbers for them, batch by batch.
    """
    parts = [source for source in sources if isinstance(source, Part)]
    whole = parts[0].whole if parts else None
    if not isinstance(whole, Arrays) or whole.augment is not None or len(parts) < len(sources):
        return None
    if any(part.whole is not whole or len(part) != len(parts[0]) for part in parts):
        return None
    return whole, [part.chosen for part in parts]


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
        return tuple(sorted(set(self.train.labels(self.holdings.of(client)).flatten().tolist())))
