"""The batches that clients train on, for one client or for several at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from potluck.core.data import Arrays, Examples, Part, is_even
from potluck.core.errors import ConfigError
from potluck.core.inputs import joined, mapped
from potluck.core.types import Batch


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
    if not all(is_even(source) for source, _ in drawn):
        raise ConfigError(
            "clients cannot be trained stacked, since their examples are of unequal lengths; choose engine.step = "
            "'counted' or 'plain'"
        )
    pool = common_pool([source for source, _ in drawn])
    if pool is None:
        streams = (batches(source, size, epochs, rng) for source, rng in drawn)
        for each in zip(*streams, strict=True):
            yield joined([inputs for inputs, _ in each], torch.stack), joined([y for _, y in each], torch.stack)
        return
    whole, held = pool
    clients, sizes = len(held), batch_sizes(len(held[0]), size)

    def unflat(tensor: Tensor) -> Tensor:
        return tensor.view(clients, -1, *tensor.shape[1:])

    for _ in range(epochs if sizes else 0):
        orders = (torch.randperm(sum(sizes), generator=rng) for _, rng in drawn)
        chosen = torch.stack([own.index_select(0, order) for own, order in zip(held, orders, strict=True)])
        for index in chosen.split(sizes, dim=1):
            inputs, targets = whole.take(index.flatten())
            yield mapped(unflat, inputs), mapped(unflat, targets)


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
