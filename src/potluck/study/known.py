"""Clients as `potluck.run` is told of them: a number of them, or who they are and what each of them has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from potluck.core.errors import ConfigError, DataError
from potluck.core.goals.goal import Goal
from potluck.data import sources
from potluck.data.dataset import Dataset
from potluck.data.fitting import require_fitting
from potluck.data.how import Given, How
from potluck.data.own import AS_IT_IS, examples_from, read
from potluck.data.owners import owner_name, owner_numbers
from potluck.data.partitions import Natural, Partition, partition_named
from potluck.data.partitions.cover import holdings_by_client, numbered
from potluck.data.tables.find import owned, table_of
from potluck.study.given import as_dataset, as_plug, is_source
from potluck.study.held import Own, by_name, dataset_of, read_client, require_like
from potluck.study.schema import shown

CLASSES = "classes"
Lists = Sequence[Any] | Mapping[str, Any]
"""The numbers of every client's examples, in order or by name."""


class Who(Protocol):
    """The clients of a run, before their data are read."""

    @property
    def count(self) -> Any:
        """How many there are; checked with the other settings."""

    @property
    def rule(self) -> Partition:
        """Who holds what of the data set."""

    def dataset(self, data: Any, test: Any, seed: int, goal: Goal | None = None) -> Dataset:
        """The data set, with owners if clients are known. With a goal, targets that do not fit it are refused."""


@dataclass(frozen=True)
class Divided:
    """A number of clients, over which a rule divides the data."""

    count: Any
    rule: Partition

    def dataset(self, data: Any, test: Any, seed: int, goal: Goal | None = None) -> Dataset:
        if isinstance(test, Mapping):
            raise ConfigError("test is a dictionary, but the clients have no names; give everybody's test examples")
        return as_dataset(data, test, seed, goal)


@dataclass(frozen=True)
class ByData:
    """Each client's own data, by name."""

    clients: Mapping[str, Any]
    rule: Partition = field(default_factory=Natural)

    @property
    def count(self) -> int:
        return len(self.clients)

    def dataset(self, data: Any, test: Any, seed: int, goal: Goal | None = None) -> Dataset:
        read = {name: read_client(name, given) for name, given in self.clients.items()}
        first = next(iter(read))
        for name, own in read.items():
            require_like(read[first], f"client {first!r}", own.source, own.goal, f"client {name!r}")
            require_fitting(own.source, goal, f"client {name!r}")
            if own.test is not None:
                require_like(read[first], f"client {first!r}", own.test, own.goal, f"test of client {name!r}")
        return dataset_of(read, test, seed, goal=goal)


@dataclass(frozen=True)
class ByNumber:
    """The numbers of each client's examples."""

    names: Sequence[str]
    lists: Sequence[Any]
    rule: Partition = field(default_factory=Natural)

    @property
    def count(self) -> int:
        return len(self.names)

    def dataset(self, data: Any, test: Any, seed: int, goal: Goal | None = None) -> Dataset:
        known = data if isinstance(data, Dataset) else sources.load(data) if is_source(data) else None
        examples = known.train if known else examples_from(data)
        require_fitting(examples, goal, "data")
        clients = dict(zip(self.names, numbered(self.lists, len(examples)), strict=True))
        require_own(clients, len(examples))
        classes, said = (known.classes, known.goal) if known else (0, CLASSES)
        held = {name: Own(examples, index, classes, said) for name, index in clients.items()}
        return dataset_of(held, test, seed, known.test if known else None, goal)


@dataclass(frozen=True)
class ByOwner:
    """The owner of each example."""

    owners: Sequence[Any]
    count: Any
    rule: Partition

    def dataset(self, data: Any, test: Any, seed: int, goal: Goal | None = None) -> Dataset:
        examples = examples_from(data)
        require_fitting(examples, goal, "data")
        numbers = owner_numbers(self.owners, len(examples), "owners", "examples")
        names = [owner_name(owner) for owner in dict.fromkeys(self.owners)]
        holdings = holdings_by_client(numbers, len(names))
        held = {name: Own(examples, holdings.of(at)) for at, name in enumerate(names)}
        return dataset_of(held, test, seed, goal=goal)


def with_owner_column(data: Any, test: Any, owners: Any) -> tuple[Any, Any, Any]:
    """The same with tables read, if a column of theirs says whose each row is: data, test and owners."""
    if isinstance(owners, str) and data is not None and not isinstance(data, Dataset) and not is_source(data):
        how = How(owners=owners)
        data = read(data, how)
        table = table_of(test, AS_IT_IS)
        if table is not None and owners in table.columns:
            test = owned(replace(table, how=how))
    if isinstance(data, Given) and data.owners is not None:
        if owners is not None and not isinstance(owners, str):
            raise ConfigError("owners is given, but the data have a column of owners already; leave one of them out")
        owners = list(data.owners)
    return data, test, owners


def who_of(clients: Any, data: Any, partition: Any, owners: Any) -> Who:
    """The clients of a run, from what a user says of them; what contradicts itself is refused."""
    if isinstance(clients, Mapping):
        for name, given in (("data", data), ("partition", partition), ("owners", owners)):
            if given is not None:
                raise ConfigError(f"clients has the data of each client, so {name} should be left out")
        return ByData(by_name(clients, "clients"))
    if isinstance(clients, Sequence) and not isinstance(clients, str):
        raise ConfigError(
            f"clients is a {type(clients).__name__}, but it should be a number, or a dictionary with the data of each "
            "client by name, as in {'alice': data, …}"
        )
    if data is None:
        raise DataError("data is None; give data=, or the data of each client, as in clients={'alice': data, …}")
    if is_lists(partition):
        return with_numbers(clients, partition, owners)
    if owners is not None:
        return with_owners(clients, data, partition, owners)
    rule = as_rule("iid" if partition is None else partition)
    if clients is None and isinstance(rule, Natural) and isinstance(data, Dataset) and data.owners is not None:
        clients = len(torch.unique(owner_numbers(data.owners, len(data.train), "owners", "training examples")))
    if clients is None:
        raise ConfigError(
            "clients is None, but it should be a number, or a dictionary with the data of each client; only with "
            "owners= or lists of examples, as in partition=[[0, 5], …], it can be left out"
        )
    return Divided(clients, rule)


def with_numbers(clients: Any, partition: Any, owners: Any) -> ByNumber:
    """Clients whose examples are listed."""
    if owners is not None:
        raise ConfigError("partition lists the examples of each client, so owners should be left out")
    if isinstance(partition, Mapping):
        lists = by_name(partition, "partition")
    else:
        lists = {str(number): one for number, one in enumerate(partition)}
    if not lists:
        raise ConfigError("partition is empty, but it should list the examples of at least one client")
    for name, one in lists.items():
        if not hasattr(one, "__len__") or isinstance(one, str):
            raise ConfigError(
                f"partition has {shown(one)} for client {name!r}, but it should list the numbers of its examples; a "
                "partition with options has a 'name', and the client of each example is what owners= takes"
            )
    if clients is not None and clients != len(lists):
        raise ConfigError(
            f"partition gives examples to {len(lists)} clients, but clients is {shown(clients)}; leave it out"
        )
    return ByNumber(list(lists), list(lists.values()))


def with_owners(clients: Any, data: Any, partition: Any, owners: Any) -> ByOwner:
    """Clients that are the owners of the data."""
    if isinstance(data, Dataset) or is_source(data):
        raise ConfigError("owners goes with examples of your own; a potluck.Dataset has owners of its own")
    rule = as_rule("natural" if partition is None else partition)
    if isinstance(partition, str | Mapping) and not isinstance(rule, Natural):
        raise ConfigError(
            f"partition is {shown(partition)}, but owners says who holds what: leave one of them out, or ask for "
            "'natural'"
        )
    if isinstance(owners, str) or not hasattr(owners, "__len__") or not hasattr(owners, "__iter__"):
        raise ConfigError(f"owners is {shown(owners)}, but it should have the owner of each example, by name or number")
    column = owners.tolist() if hasattr(owners, "tolist") else list(owners)
    numbers = owner_numbers(column, len(column), "owners", "examples")
    return ByOwner(column, len(torch.unique(numbers)) if clients is None else clients, rule)


def as_rule(partition: Any) -> Partition:
    """A partition by name, with its options, or a function of the user's."""
    rule: Partition = as_plug(partition_named, partition, "partition", "(targets, clients, rng, owners)")
    return rule


def is_lists(partition: Any) -> bool:
    """Whether this lists the examples of clients: no name, no dictionary with a name, no function."""
    if isinstance(partition, Mapping):
        return not isinstance(partition.get("name"), str)
    return isinstance(partition, Sequence | np.ndarray | Tensor) and not isinstance(partition, str)


def require_own(clients: Mapping[str, Tensor], total: int) -> None:
    """Refuse a client without examples, and an example of two clients."""
    for name, index in clients.items():
        if not len(index):
            raise DataError(f"partition gives client {name!r} no examples; leave it out, or give it some")
    held = torch.cat(list(clients.values())).bincount(minlength=total)
    if int(held.max()) > 1:
        twice = int((held > 1).nonzero()[0])
        one, other = [name for name, index in clients.items() for _ in range(int((index == twice).sum()))][:2]
        if one == other:
            raise DataError(f"partition gives example {twice} to client {one!r} twice; list it once")
        raise DataError(
            f"partition gives example {twice} to clients {one!r} and {other!r}, but an example is one client's; a "
            "function may give it to both"
        )
