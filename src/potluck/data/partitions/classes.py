"""Exactly k classes per client (FLANC, sec. 4: 3 of CIFAR-10's 10, 30 of CIFAR-100's 100).

All classes have equally many holders, or one more where `clients x k` does not divide; every
class is split evenly among its holders; every example is used.

Departure: in FLANC's code a client can draw a class twice, so that a few clients have k - 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from potluck.core.data import Holdings
from potluck.core.errors import ConfigError, DataError
from potluck.data.partitions.cover import (
    even_sizes,
    holdings_by_client,
    require_classes,
    require_examples,
    require_labels,
)


@dataclass(frozen=True)
class Classes:
    """Exactly `k` classes per client, every class split evenly among its holders."""

    k: Annotated[int, Ge(1)]

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError(f"k is {self.k}, but a client holds at least 1 class")

    def __call__(self, targets: Tensor, clients: int, rng: torch.Generator, owners: Tensor | None = None) -> Holdings:
        require_labels(targets, "classes")
        require_examples(targets, clients, self.k)
        labels = torch.unique(targets)
        require_classes(len(labels), clients, self.k, "k")
        held = choose_classes(clients, self.k, len(labels), rng)
        client_of = torch.empty_like(targets)
        for position, label in enumerate(labels.tolist()):
            members = (targets == label).nonzero().flatten()
            holders = (held == position).any(dim=1).nonzero().flatten()
            if len(members) < len(holders):
                raise DataError(
                    f"class {label} has {len(members)} training examples for {len(holders)} clients: "
                    "ask for fewer clients or a smaller k"
                )
            members = members[torch.randperm(len(members), generator=rng)]
            holders = holders[torch.randperm(len(holders), generator=rng)]
            client_of[members] = holders.repeat_interleave(even_sizes(len(members), len(holders)))
        return holdings_by_client(client_of, clients)


def choose_classes(clients: int, k: int, classes: int, rng: torch.Generator) -> Tensor:
    """k different classes for every client, (clients, k), all classes chosen equally often or once more.

    Each client in turn takes the k classes that were taken least so far, of equals at random: the
    counts then never differ by more than one, so there are always k different ones to take.
    """
    taken = torch.zeros(classes)
    chosen = torch.empty(clients, k, dtype=torch.long)
    for client in range(clients):
        chosen[client] = (taken + torch.rand(classes, generator=rng)).topk(k, largest=False).indices
        taken[chosen[client]] += 1
    return chosen[torch.randperm(clients, generator=rng)]  # neighbours in turn avoid each other's classes
