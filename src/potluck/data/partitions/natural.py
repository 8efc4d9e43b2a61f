"""The data's own division: one client per person, as LEAF does with Shakespeare's speaking roles."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.core.data import Holdings
from potluck.core.errors import DataError
from potluck.data.partitions.cover import NOBODY, holdings_by_client, require_examples


@dataclass(frozen=True)
class Natural:
    """One client per owner of the data; with fewer clients than owners, so many owners are drawn.

    Clients follow the owners' numbers. Examples of owners who are not drawn are left out.
    """

    def __call__(self, targets: Tensor, clients: int, rng: torch.Generator, owners: Tensor | None = None) -> Holdings:
        if owners is None:
            raise DataError("partition 'natural' needs data that came from people, and this data set names no owners")
        require_examples(targets, clients)
        people, owner_of = torch.unique(owners, return_inverse=True)
        if clients > len(people):
            raise DataError(f"{clients} clients were asked for, but the data have {len(people)} owners: ask for fewer")
        client_of_owner = torch.full((len(people),), NOBODY)
        drawn = torch.randperm(len(people), generator=rng)[:clients].sort().values
        client_of_owner[drawn] = torch.arange(clients)
        return holdings_by_client(client_of_owner[owner_of], clients)
