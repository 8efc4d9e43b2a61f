"""Sizes that a module remembers in its own attributes, such as `self.head_dim`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch import nn

Sizes = Mapping[int, tuple[int, ...]]
"""From a size in the wide network to what it may be in the narrow one."""


@dataclass(frozen=True)
class Attribute:
    """A size, or one of several, that modules of one class remember."""

    owner: type[nn.Module]
    name: str
    index: int | None
    size: int
    options: tuple[int, ...]  # the size itself, then what it may have become, the likeliest first


def attributes(module: nn.Module, sizes: Sizes) -> Iterator[Attribute]:
    """The attributes of one module that may be changed sizes."""
    for name, value in vars(module).items():
        for index, size in entries(value):
            others = tuple(option for option in sizes.get(size, ()) if option != size)
            if others:
                yield Attribute(type(module), name, index, size, (size, *others))


def entries(value: object) -> Iterable[tuple[int | None, int]]:
    """The whole numbers in an attribute."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [(None, value)]
    if isinstance(value, tuple | list) and all(isinstance(each, int) and not isinstance(each, bool) for each in value):
        return list(enumerate(value))
    return []


def assign(module: nn.Module, attribute: Attribute, size: int) -> None:
    """Give an attribute another size."""
    if attribute.index is None:
        setattr(module, attribute.name, size)
        return
    values = list(getattr(module, attribute.name))
    values[attribute.index] = size
    setattr(module, attribute.name, type(getattr(module, attribute.name))(values))
