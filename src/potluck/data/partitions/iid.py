"""Every client is a fair sample of the whole (HeteroFL, sec. 4).

Departure: HeteroFL gives every client floor(N / clients) examples and never uses the rest;
here the rest is spread, one example each, over the first clients.
FLANC's code gives every client exactly as many examples of each class: that is `classes` with k at their number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.core.data import Holdings
from potluck.data.partitions.cover import boundaries, even_sizes, require_examples


@dataclass(frozen=True)
class IID:
    """Examples are dealt at random; sizes differ by one at most."""

    def __call__(self, targets: Tensor, clients: int, rng: torch.Generator, owners: Tensor | None = None) -> Holdings:
        require_examples(targets, clients)
        order = torch.randperm(len(targets), generator=rng)
        return Holdings(order, boundaries(even_sizes(len(targets), clients)))
