"""Names of tensors: `place/name` for what belongs to a level, a base or a client, `module.own` inside a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")


def under(place: object, values: Mapping[str, Value]) -> dict[str, Value]:
    """The same values, each called `place/name`.

    >>> under("phone", {"head.bias": 1})
    {'phone/head.bias': 1}
    """
    return {placed(place, name): value for name, value in values.items()}


def placed(place: object, name: str) -> str:
    """What a tensor of this place is called."""
    return f"{place}/{name}"


def inside(place: object, values: Mapping[str, Value]) -> dict[str, Value]:
    """The values of one place, by the names they have there.

    >>> inside(1, {"1/w": "a", "12/w": "b"})
    {'w': 'a'}
    """
    start = placed(place, "")
    return {name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}


def outside(place: object, values: Mapping[str, Value]) -> dict[str, Value]:
    """The values of all other places, by their full names."""
    start = placed(place, "")
    return {name: value for name, value in values.items() if not name.startswith(start)}


def own_name(module: str, name: str) -> str:
    """The full name of a module's own parameter; the network itself has no name.

    >>> own_name("head", "bias"), own_name("", "bias")
    ('head.bias', 'bias')
    """
    return f"{module}.{name}" if module else name
