"""Test examples dealt out to clients as the training examples were (HeteroFL's Local evaluation)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.core.data import Holdings
from potluck.core.evaluate import LocalTest
from potluck.data.partitions.cover import NOBODY, holdings_by_client


@dataclass(frozen=True)
class LocalShare:
    """Whose test examples are whose, and what each example's client knows."""

    holdings: Holdings
    test: LocalTest


def local_share(train: Tensor, holdings: Holdings, test: Tensor, classes: int) -> LocalShare:
    """Give each client test examples of its own classes, of each class in proportion to what it trains on."""
    owner = owners_of(train, holdings, test)
    return LocalShare(holdings_by_client(owner, len(holdings)), local_test(train, holdings, owner, classes))


def owners_of(train: Tensor, holdings: Holdings, test: Tensor) -> Tensor:
    """The client of every test example.

    The j-th of n test examples of a class goes to whoever holds the training example at the
    same point, (j + 1/2) / n, of that class's training examples in the order of the clients.
    """
    clients = torch.repeat_interleave(holdings.offsets.diff())
    held = train[holdings.order]
    owner = torch.full_like(test, NOBODY)
    for label in torch.unique(test):
        places = (test == label).nonzero().flatten()
        holders = clients[held == label]
        if len(holders):
            at = (torch.arange(len(places)) + 0.5) * len(holders) / len(places)
            owner[places] = holders[at.long()]
    return owner


def local_test(train: Tensor, holdings: Holdings, owner: Tensor, classes: int) -> LocalTest:
    """The classes that the client of every test example has in its training data."""
    clients = torch.repeat_interleave(holdings.offsets.diff())
    held = train[holdings.order]
    owned = owner != NOBODY
    known, row = torch.unique(owner.clamp(min=0), return_inverse=True)
    has = torch.zeros(len(known), classes, dtype=torch.bool)
    position = torch.searchsorted(known, clients).clamp(max=len(known) - 1)
    theirs = known[position] == clients
    has[position[theirs], held[theirs]] = True
    return LocalTest(has[row], owned)
