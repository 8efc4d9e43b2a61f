"""Examples in memory, and who holds which of them."""

from __future__ import annotations

from collections.abc import Callable
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
        inputs = self.inputs[index]
        if rng is not None and self.augment is not None:
            inputs = self.augment(inputs, rng)
        return (self.prepare(inputs) if self.prepare is not None else inputs), self.targets[index]

    def labels(self, index: Tensor) -> Tensor:
        return self.targets[index]


@dataclass(frozen=True)
class Part:
    """Some of the examples of a larger set."""

    whole: Examples
    chosen: Tensor

    def __len__(self) -> int:
        return len(self.chosen)

    def take(self, index: Tensor, rng: torch.Generator | None = None) -> Batch:
        return self.whole.take(self.chosen[index], rng)

    def labels(self, index: Tensor) -> Tensor:
        return self.whole.labels(self.chosen[index])


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
        return int(self.offsets[client + 1] - self.offsets[client])


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
        return tuple(torch.unique(self.train.labels(self.holdings.of(client))).tolist())
