"""Sizes that a module remembers, such as `self.head_dim`, also inside lists, dictionaries and objects with settings."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from potluck.core.copying import INSIDE

Sizes = Mapping[int, tuple[int, ...]]
"""From a size in the wide network to what it may be in the narrow one."""

Path = tuple[Hashable, ...]
"""Names, keys and positions that lead to a number."""

DEEPEST = 5  # how far to look inside attributes


@dataclass(frozen=True)
class Attribute:
    """A size that modules of one class remember, or objects of one class that they keep their settings in."""

    owner: type
    path: Path  # from its owner
    size: int
    options: tuple[int, ...]  # the size itself, then what it may have become, the likeliest first
    reach: Path = field(default=(), compare=False)  # from the module to the owner


def attributes(module: nn.Module, own: Sizes, everywhere: Sizes, known: Collection[str]) -> Iterator[Attribute]:
    """The sizes that a module remembers and that may have changed, but for attributes that are known already.

    An object with settings may be anybody's, so its sizes are looked for in the whole network.
    """
    for name, value in vars(module).items():
        if name not in INSIDE and name not in known:
            for owner, reach, path, size in numbers(value, type(module), (), (name,)):
                sizes = own if owner is type(module) else everywhere
                others = tuple(option for option in sizes.get(size, ()) if option != size)
                if others:
                    yield Attribute(owner, path, size, (size, *others), reach)


def numbers(value: Any, owner: type, reach: Path, path: Path) -> Iterator[tuple[type, Path, Path, int]]:
    """The whole numbers inside a value, each with its owner and the way to it."""
    if len(reach) + len(path) > DEEPEST:
        return
    if type(value) is int:
        yield owner, reach, path, value
    elif isinstance(value, tuple | list):
        for key, each in enumerate(value):
            yield from numbers(each, owner, reach, (*path, key))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from numbers(each, owner, reach, (*path, key))
    elif keeps_settings(value) and not str(path[0]).startswith("_"):  # nobody's settings, but a library's notes
        for key, each in vars(value).items():
            yield from numbers(each, type(value), (*reach, *path), (key,))


def keeps_settings(value: object) -> bool:
    """Whether it is an object of the user's that only holds values."""
    if isinstance(value, type | Enum | ModuleType | nn.Module | Tensor | torch.Generator) or callable(value):
        return False
    return hasattr(value, "__dict__") and not type(value).__module__.startswith("torch.")


def assign(module: nn.Module, attribute: Attribute, size: int) -> None:
    """Give an attribute another size."""
    with_size(module, (*attribute.reach, *attribute.path), size)


def with_size(value: Any, path: Path, size: int) -> Any:
    """A value with another number at the end of a path: the same one changed, or another tuple."""
    if not path:
        return size
    first, rest = path[0], path[1:]
    if isinstance(value, tuple):
        parts = [with_size(each, rest, size) if place == first else each for place, each in enumerate(value)]
        return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
    inside: Any = value if isinstance(value, list | dict) else vars(value)
    inside[first] = with_size(inside[first], rest, size)
    return value
