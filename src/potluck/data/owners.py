"""Who each example came from, by number or by name: clients that are known before a run."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real

import torch
from torch import Tensor

from potluck.core.data import Holdings
from potluck.core.errors import DataError
from potluck.data.partitions.cover import NOBODY

Owners = Tensor | Sequence[str | int]
"""The owner of each example; any column of names or whole numbers will do."""

LONGEST_NAME = 200  # characters of a client's name, which stands in records and on the screen


def owner_numbers(owners: Owners, examples: int, setting: str, what: str) -> Tensor:
    """The owner of each example as a number; names are numbered in the order in which they appear.

    >>> owner_numbers(["bob", "alice", "bob"], 3, "owners", "examples")
    tensor([0, 1, 0])
    """
    require_column(owners, examples, setting, what)
    if isinstance(owners, Tensor):
        return owners
    position = {owner: at for at, owner in enumerate(dict.fromkeys(owners))}
    return torch.tensor([position[owner] for owner in owners])


def require_column(owners: Owners, examples: int, setting: str, what: str) -> None:
    """Refuse a column that has no owner for some example, or a name that records cannot have."""
    if len(owners) != examples:
        raise DataError(f"{setting} has {len(owners)} entries for {examples} {what}: name one for each")
    if isinstance(owners, Tensor):
        if owners.dim() != 1 or owners.is_floating_point() or owners.is_complex():
            raise DataError(
                f"{setting} is a {owners.dtype} tensor of shape {tuple(owners.shape)}, but it should have a whole "
                "number for each example"
            )
        return
    for at, owner in enumerate(owners):
        if not is_owner(owner):
            raise DataError(
                f"{setting} has {owner!r} for example {at}, but each example needs an owner, by name or by whole number"
            )
    people = dict.fromkeys(owners)
    names = {owner_name(owner): owner for owner in people}
    for owner in people:
        require_name(owner_name(owner), setting)
        if names[owner_name(owner)] != owner:
            raise DataError(f"{setting} has {owner!r} and {names[owner_name(owner)]!r}, which are the same name")


def is_owner(value: object) -> bool:
    """Whether this can be somebody: None, NaN and empty text are gaps."""
    if isinstance(value, str):
        return bool(value)
    return isinstance(value, Integral) or (isinstance(value, Real) and float(value).is_integer())


def owner_name(owner: object) -> str:
    """What an owner is called.

    >>> owner_name("alice"), owner_name(7), owner_name(7.0)
    ('alice', '7', '7')
    """
    if isinstance(owner, Integral):
        return str(int(owner))  # also beyond what a float holds
    return f"{float(owner):.0f}" if isinstance(owner, Real) else str(owner)


def require_name(name: str, setting: str) -> None:
    """Refuse a name that a line of a record cannot show."""
    if not name or not name.isprintable() or len(name) > LONGEST_NAME:
        raise DataError(
            f"{setting} has a client called {name[:LONGEST_NAME]!r}, but a name should have 1 to {LONGEST_NAME} "
            "characters that can be printed"
        )


def owners_of_clients(owners: Owners, numbers: Tensor, holdings: Holdings) -> list[str]:
    """What the owner of each client's examples is called; every client has some."""
    found = numbers[holdings.order[holdings.offsets[:-1]]].tolist()
    if isinstance(owners, Tensor):
        return [str(number) for number in found]
    people = list(dict.fromkeys(owners))
    return [owner_name(people[number]) for number in found]


def says_more(owners: Owners, called: Sequence[str]) -> bool:
    """Whether what clients are called says more than their numbers do: a tensor without gaps does not."""
    if isinstance(owners, Tensor):
        people = torch.unique(owners)
        return not torch.equal(people, torch.arange(len(people)).to(people.dtype))
    return list(called) != [str(number) for number in range(len(called))]


def clients_of(owners: Owners, called: Sequence[str]) -> Tensor:
    """The client of each example, by what clients are called; nobody if the owner is none of them.

    >>> clients_of(["bob", "dave"], ["alice", "bob"])
    tensor([ 1, -1])
    """
    client = {name: number for number, name in enumerate(called)}
    return torch.tensor([client.get(owner, NOBODY) for owner in listed(owners)], dtype=torch.long)


def listed(owners: Owners) -> list[str]:
    """What the owner of each example is called."""
    return [owner_name(owner) for owner in (owners.tolist() if isinstance(owners, Tensor) else owners)]
