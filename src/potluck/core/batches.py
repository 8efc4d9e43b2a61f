"""The batches that clients train on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from potluck.core.data import Arrays, Examples, Part
from potluck.core.types import Batch


def shuffled(count: int, size: int, epochs: int, rng: torch.Generator) -> Iterator[list[Tensor]]:
    """For every epoch its batches of so many examples, each in one of them, in an order that is drawn.

    A single leftover example joins the batch before it: batch norm cannot train on one. Batches
    that are asked to be of one example stay so.
    """
    for _ in range(epochs if count else 0):
        parts = list(torch.split(torch.randperm(count, generator=rng), size))
        if size > 1 and len(parts) > 1 and len(parts[-1]) == 1:
            parts[-2:] = [torch.cat(parts[-2:])]
        yield parts


def batches(examples: Examples, size: int, epochs: int, rng: torch.Generator) -> Iterator[Batch]:
    """Shuffled training batches, every example once per epoch."""
    for parts in shuffled(len(examples), size, epochs, rng):
        for part in parts:
            yield examples.take(part, rng)


def stacked_batches(
    sources: Sequence[Examples], size: int, epochs: int, rngs: Sequence[torch.Generator]
) -> Iterator[Batch]:
    """The batches of several clients with equally many examples, a client per row."""
    pool = common_pool(sources)
    if pool is None:
        streams = (batches(source, size, epochs, rng) for source, rng in zip(sources, rngs, strict=True))
        for each in zip(*streams, strict=True):
            yield torch.stack([inputs for inputs, _ in each]), torch.stack([targets for _, targets in each])
        return
    whole, held = pool
    clients = len(held)
    orders = (shuffled(len(own), size, epochs, rng) for own, rng in zip(held, rngs, strict=True))
    for parts in zip(*orders, strict=True):
        chosen = torch.stack([own[torch.cat(order)] for own, order in zip(held, parts, strict=True)])
        for index in chosen.split([len(part) for part in parts[0]], dim=1):
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
