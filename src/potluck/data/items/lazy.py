"""Examples that are read from the user's data set when a batch asks for them, in whichever process that is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from potluck.core.data import first_of, rows
from potluck.core.inputs import mapped
from potluck.core.random import number
from potluck.core.types import Batch
from potluck.data.columns.ragged import Ragged
from potluck.data.columns.tensors import leaves_of, require_finite, usable
from potluck.data.items.asked import item_of
from potluck.data.items.batching import Batching
from potluck.data.items.generators import own_draws, seed_all
from potluck.data.preprocess import scaled_bytes


@dataclass(frozen=True)
class Items:
    """A data set of items, and the targets of all of them, which were found once."""

    dataset: Any
    batching: Batching
    known: Any  # a column of targets, or several
    made_up: Batch  # a batch of one, of zeros
    even: bool
    convert: Callable[[Tensor], Tensor] | None = None  # targets into the type that the goal needs

    def __len__(self) -> int:
        return len(tree_leaves(self.known)[0])

    def take(self, index: Tensor, rng: torch.Generator | None = None) -> Batch:
        """These examples. What is random in an item depends on its number and on the generator, which stays as it is.

        So the order of examples is the same as if all of them were in memory.
        """
        numbers = index.tolist()
        seed = 0 if rng is None else drawn_from(rng)
        with own_draws(seed):
            items = []
            for each in numbers:
                seed_all(number(seed, "item", each))
                items.append(item_of(self.dataset, each))
            seed_all(number(seed, "batch", *numbers))
            inputs, targets = self.batching.batch(items, numbers)
        inputs = mapped(usable, inputs)
        for place, tensor in leaves_of(inputs):
            require_finite(tensor, "the data set", numbers, place)
        targets = tree_map(of_type, targets, self.known)
        return scaled_bytes(inputs), targets if self.convert is None else mapped(self.convert, targets)

    def labels(self, index: Tensor) -> Tensor:
        return first_of(rows(self.known, index))


def of_type(batch: Tensor, column: Tensor | Ragged) -> Tensor:
    """Targets of a batch in the type that those of all examples have; some have -100 only where lengths differ."""
    return batch.to(column.values.dtype if isinstance(column, Ragged) else column.dtype)


def drawn_from(rng: torch.Generator) -> int:
    """The number that a generator would draw next; it is not moved."""
    copy = torch.Generator().set_state(rng.get_state())
    return int(torch.randint(2**62, (1,), generator=copy))


@dataclass(frozen=True)
class Concatenated:
    """Some items of each of several data sets, one data set after the other."""

    parts: tuple[tuple[Any, Tensor], ...]

    @cached_property
    def ends(self) -> list[int]:
        """How many items there are up to the end of each part."""
        return list(accumulate(len(chosen) for _, chosen in self.parts))

    def __getitem__(self, number: int) -> Any:
        at = bisect_right(self.ends, number)
        dataset, chosen = self.parts[at]
        return dataset[int(chosen[number - (self.ends[at] - len(chosen))])]
