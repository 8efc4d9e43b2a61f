"""A few classes per client, by shards of one class each (LG-FedAvg; HeteroFL's non-IID-n).

Every class is cut, in the order of the data set, into as many even shards as it has places among
the clients' `clients x classes_per_client`; the shards are dealt at random. A client can draw a
class twice. LG-FedAvg lets it keep both shards: all data are used. HeteroFL takes the twin away
and gives it to nobody: `dropped` says how many examples that cost (about 5 % with 100 clients,
10 classes and 2 classes per client).

Departure: places that do not divide evenly go one each to classes at random; the authors' code
rounds down and may then give clients fewer shards than asked for.
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
    NOBODY,
    even_sizes,
    holdings_by_client,
    require_classes,
    require_examples,
    require_labels,
)


@dataclass(frozen=True)
class Shards:
    """At most `classes_per_client` classes each, by shards; without `keep_duplicates` twin shards are dropped."""

    classes_per_client: Annotated[int, Ge(1)] = 2
    keep_duplicates: bool = True

    def __post_init__(self) -> None:
        if self.classes_per_client < 1:
            raise ConfigError(f"classes_per_client is {self.classes_per_client}, but it must be at least 1")

    def __call__(self, targets: Tensor, clients: int, rng: torch.Generator, owners: Tensor | None = None) -> Holdings:
        require_labels(targets, "shards")
        require_examples(targets, clients, self.classes_per_client)
        labels = torch.unique(targets)
        require_classes(len(labels), clients, self.classes_per_client, "classes_per_client")
        places = clients * self.classes_per_client
        shards = even_sizes(places, len(labels))[torch.randperm(len(labels), generator=rng)]
        dealt = torch.randperm(places, generator=rng)  # place -> shard; client i has places i n to i n + n - 1
        client_of_shard = torch.empty_like(dealt)
        client_of_shard[dealt] = torch.arange(places) // self.classes_per_client
        if not self.keep_duplicates:
            label_of_shard = torch.repeat_interleave(shards)
            client_of_shard[twins(client_of_shard, label_of_shard, len(labels))] = NOBODY
        return holdings_by_client(client_of_shard[cut(targets, labels, shards)], clients)


def twins(client_of_shard: Tensor, label_of_shard: Tensor, labels: int) -> Tensor:
    """The shards whose client has another one of the same class before them."""
    pair = client_of_shard * labels + label_of_shard
    order = pair.argsort(stable=True)
    return order[1:][pair[order].diff() == 0]


def cut(targets: Tensor, labels: Tensor, shards: Tensor) -> Tensor:
    """Every example's shard when the j-th label is cut into `shards[j]` even pieces, numbered class after class."""
    shard_of = torch.empty_like(targets)
    first = 0
    for label, pieces in zip(labels.tolist(), shards.tolist(), strict=True):
        members = (targets == label).nonzero().flatten()
        if len(members) < pieces:
            raise DataError(
                f"class {label} has {len(members)} training examples for {pieces} shards: "
                "ask for fewer clients or fewer classes per client"
            )
        shard_of[members] = first + torch.repeat_interleave(even_sizes(len(members), pieces))
        first += pieces
    return shard_of
