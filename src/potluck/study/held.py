"""The data set of clients that are known already, each with examples, and perhaps test examples, of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from potluck.core.data import Arrays, Examples, is_even
from potluck.core.errors import ConfigError, DataError
from potluck.core.goals.goal import Goal
from potluck.core.inputs import mapped
from potluck.core.plug import hint
from potluck.core.random import stream
from potluck.core.types import Batch
from potluck.data import sources
from potluck.data.dataset import Dataset
from potluck.data.fitting import require_fitting
from potluck.data.items.lazy import Items
from potluck.data.named import require_names
from potluck.data.own import AS_IT_IS, examples_from, read
from potluck.data.owners import is_owner, owner_name, require_name
from potluck.data.preprocess import Scale, ScaleBytes
from potluck.study.facts import alike, example_of, told, unfilled
from potluck.study.given import as_proxy, is_source
from potluck.study.joined import Parts, joined
from potluck.study.schema import shown


@dataclass(frozen=True)
class Own:
    """What one client has: some examples of a source, and test examples if they came with them."""

    source: Examples
    chosen: Tensor
    classes: int = 0  # that the source says there are
    goal: Goal | str = "classes"
    test: Examples | None = None


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
        found = read(given, AS_IT_IS)
        if found.owners is not None:
            raise DataError("its rows have owners, but they are all this client's; leave owners= out")
        return Own(found.examples, torch.arange(len(found.examples)))
    except DataError as error:
        raise DataError(f"client {name!r}: {error}") from error


def require_like(first: Own, its_name: str, other: Examples, goal: Goal | str, name: str) -> None:
    """Refuse examples of another kind than those of the first client: networks take one kind, and so does a tensor."""
    source = first.source
    if not isinstance(source, Arrays | Items) or not isinstance(other, Arrays | Items):
        return
    require_names(source, its_name, other, name)
    even, as_kept = is_even(source) and is_even(other), type(source) is type(other)
    (inputs, labels), (its_inputs, its_labels) = columns_like(other, as_kept), columns_like(source, as_kept)
    # Labels take the type of the goal; until then, 1 in one file and 1.5 in another are both numbers.
    plain, its_plain = mapped(torch.Tensor.float, labels), mapped(torch.Tensor.float, its_labels)
    for what, own, wanted, fits in (
        ("inputs", inputs, its_inputs, alike(inputs, its_inputs, even)),
        ("labels", labels, its_labels, alike(plain, its_plain, even)),
    ):
        if not fits:
            raise DataError(f"{name} has {what} {told(own)}, but {its_name} has {told(wanted)}: they should be alike")
    if (uses_of(other, as_kept), goal) != (uses_of(source, as_kept), first.goal):
        raise DataError(f"{name} has examples that are prepared or used in another way than those of {its_name}")


def columns_like(examples: Arrays | Items, as_kept: bool) -> Batch:
    """A batch of one: as it is kept, or as the network is given it."""
    if isinstance(examples, Items) or not as_kept:
        return example_of(examples)
    return unfilled(examples.inputs), unfilled(examples.targets)


def uses_of(examples: Arrays | Items, as_kept: bool) -> tuple[Any, Any]:
    """What batches go through; items are ready as they are read, and so are bytes that are only scaled."""
    if isinstance(examples, Items):
        return None, None
    ready = not as_kept and examples.prepare in (Scale(), ScaleBytes())
    return None if ready else examples.prepare, examples.augment


def dataset_of(
    clients: Mapping[str, Own], test: Any, seed: int, shared: Examples | None = None, goal: Goal | None = None
) -> Dataset:
    """The data set of clients that are known, each with test examples of its own unless everybody's are given."""
    kept: Parts = {name: (own.source, own.chosen) for name, own in clients.items()}
    scored: Parts = {}
    if isinstance(test, Mapping):
        scored = tests_of(test, clients, goal)
    elif shared is None and isinstance(test, int | float):
        kept, scored = held_out(clients, test, seed)
    whose = None
    if shared is None and not scored:
        try:
            given = read(test, AS_IT_IS)
        except DataError as error:
            raise DataError(f"test: {error}") from error
        shared, whose = given.examples, given.owners
        name, first = next(iter(clients.items()))
        require_names(first.source, f"client {name!r}", shared, "test")
        require_fitting(shared, goal, "test")
    examples = joined(scored) if scored or shared is None else shared
    said, classes = next(iter(clients.values())).goal, max(own.classes for own in clients.values())
    owned = column(scored) if scored else None if whose is None else [owner_name(owner) for owner in whose]
    return Dataset(joined(kept), examples, classes, said, column(kept), owned)


def tests_of(test: Mapping[Any, Any], clients: Mapping[str, Own], goal: Goal | None) -> Parts:
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
        require_fitting(examples, goal, f"test of client {name!r}")
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


def column(parts: Parts) -> list[str]:
    """The client of each example in `joined`."""
    return [name for name, (_, chosen) in parts.items() for _ in range(len(chosen))]
