"""The data set of clients that are known already, each with examples, and perhaps test examples, of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from potluck.core.data import Arrays, Examples, Part
from potluck.core.errors import ConfigError, DataError
from potluck.core.plug import hint
from potluck.core.random import stream
from potluck.core.types import Goal
from potluck.data import sources
from potluck.data.dataset import Dataset
from potluck.data.own import examples_from
from potluck.data.owners import is_owner, owner_name, require_name
from potluck.study.given import as_proxy, is_source
from potluck.study.recipes import described
from potluck.study.schema import shown


@dataclass(frozen=True)
class Own:
    """What one client has: some examples of a source, and test examples if they came with them."""

    source: Examples
    chosen: Tensor
    classes: int
    goal: Goal = "classes"
    test: Examples | None = None


Parts = dict[str, tuple[Examples, Tensor]]
"""Some examples of a source, by client."""


def by_name(given: Mapping[Any, Any], setting: str) -> dict[str, Any]:
    """What is given for each client, by its name as text."""
    if not given:
        raise ConfigError(f"{setting} is empty, but it should have at least one client")
    for key in given:
        if not is_owner(key):
            raise ConfigError(f"{setting} has the key {shown(key)}, but it should be a client's name or whole number")
        require_name(owner_name(key), setting)
    found = {owner_name(key): value for key, value in given.items()}
    if len(found) < len(given):
        raise ConfigError(f"{setting} has a number and a text that are the same name; use one of them")
    return found


def read_client(name: str, given: Any) -> Own:
    """What one client has, from anything that `data=` takes."""
    try:
        if isinstance(given, Dataset) or is_source(given):
            data = given if isinstance(given, Dataset) else sources.load(given)
            train, test = examples_from(data.train), examples_from(data.test)
            return Own(train, torch.arange(len(train)), data.classes, data.goal, test)
        examples = examples_from(given)
        return Own(examples, torch.arange(len(examples)), highest(examples) + 1)
    except DataError as error:
        raise DataError(f"client {name!r}: {error}") from error


def require_like(first: Own, its_name: str, other: Examples, goal: Goal, name: str) -> None:
    """Refuse examples of another kind than those of the first client: networks take one kind, and so does a tensor."""
    source = first.source
    if not isinstance(source, Arrays) or not isinstance(other, Arrays):
        return
    for what, own, wanted in (("inputs", other.inputs, source.inputs), ("labels", other.targets, source.targets)):
        if described(own) != described(wanted):
            raise DataError(
                f"{name} has {what} {described(own)}, but {its_name} has {described(wanted)}: they should be alike"
            )
    if (other.prepare, other.augment, goal) != (source.prepare, source.augment, first.goal):
        raise DataError(f"{name} has examples that are prepared or used in another way than those of {its_name}")


def dataset_of(
    clients: Mapping[str, Own], test: Any, seed: int, classes: int, shared: Examples | None = None
) -> Dataset:
    """The data set of clients that are known, each with test examples of its own unless everybody's are given."""
    kept: Parts = {name: (own.source, own.chosen) for name, own in clients.items()}
    scored: Parts = {}
    if isinstance(test, Mapping):
        scored = tests_of(test, clients)
    elif shared is None and isinstance(test, int | float):
        kept, scored = held_out(clients, test, seed)
    elif shared is None:
        shared = examples_from(test)
    examples = joined(scored) if scored or shared is None else shared
    goal, owners = next(iter(clients.values())).goal, column(kept)
    if goal == "classes":
        classes = max(classes, highest(examples) + 1)
    return Dataset(joined(kept), examples, classes, goal, owners, column(scored) if scored else None)


def tests_of(test: Mapping[Any, Any], clients: Mapping[str, Own]) -> Parts:
    """The test examples of each client that has some."""
    first = next(iter(clients))
    found: Parts = {}
    for name, given in by_name(test, "test").items():
        if name not in clients:
            raise ConfigError(f"test has {name!r}, who is none of the clients; {hint(name, list(clients)[:10])}")
        try:
            examples = examples_from(as_proxy(given))
        except DataError as error:
            raise DataError(f"test of client {name!r}: {error}") from error
        require_like(clients[first], f"client {first!r}", examples, clients[first].goal, f"test of client {name!r}")
        found[name] = examples, torch.arange(len(examples))
    return found


def held_out(clients: Mapping[str, Own], share: float, seed: int) -> tuple[Parts, Parts]:
    """What each client trains on, and a random share to score on, unless test examples came with the client.

    Everybody keeps at least one example to train on.
    """
    if not 0 < share < 1:
        raise DataError(
            f"test is {share}, but it should be a share between 0 and 1 of each client's examples, such as 0.2, or "
            "test examples"
        )
    kept: Parts = {}
    scored: Parts = {}
    for number, (name, own) in enumerate(clients.items()):
        size, kept[name] = len(own.chosen), (own.source, own.chosen)
        if own.test is not None:
            scored[name] = own.test, torch.arange(len(own.test))
            continue
        order = torch.randperm(size, generator=stream(seed, "test", number))
        held = min(math.ceil(size * share), size - 1)
        kept[name], scored[name] = (
            (own.source, own.chosen[part.sort().values]) for part in (order[held:], order[:held])
        )
    if not any(len(chosen) for _, chosen in scored.values()):
        raise DataError(f"test is {share}, but no client has an example to spare; give test examples with test=")
    return kept, scored


def joined(parts: Parts) -> Examples:
    """The examples of all clients, one client after the other, in one pair of tensors that is filled once."""
    first, _ = next(iter(parts.values()))
    if not isinstance(first, Arrays):
        return Part(first, torch.cat([chosen for _, chosen in parts.values()]))
    total, end = sum(len(chosen) for _, chosen in parts.values()), 0
    inputs, targets = (each.new_empty((total, *each.shape[1:])) for each in (first.inputs, first.targets))
    for source, chosen in parts.values():
        assert isinstance(source, Arrays)
        start, end = end, end + len(chosen)
        torch.index_select(source.inputs, 0, chosen, out=inputs[start:end])
        torch.index_select(source.targets, 0, chosen, out=targets[start:end])
    return replace(first, inputs=inputs, targets=targets)


def column(parts: Parts) -> list[str]:
    """The client of each example in `joined`."""
    return [name for name, (_, chosen) in parts.items() for _ in range(len(chosen))]


def highest(examples: Examples) -> int:
    """The highest label."""
    return int(examples.labels(torch.arange(len(examples))).max())
