"""Settings in layers, such as those of a preset, a case and a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from potluck.study.schema import Table


def merged(layers: Iterable[Table]) -> Table:
    """Settings in layers: later ones win, key by key in each section.

    A section or a value that names a thing is taken whole: options of one method are not those of another.
    A value without a name adds options to the thing that was named before, or that is named later.

    >>> merged([{"train": {"lr": 1, "clip": 0}, "method": {"name": "fedhm", "rho": 2}}, {"train": {"lr": 2}}])
    {'train': {'lr': 2, 'clip': 0}, 'method': {'name': 'fedhm', 'rho': 2}}
    >>> merged([{"method": {"name": "fedhm", "rho": 2}}, {"method": {"name": "flanc"}}])
    {'method': {'name': 'flanc'}}
    >>> merged([{"fleet": {"assignment": "blocks"}}, {"fleet": {"assignment": {"mix": "a2-b8"}}}])
    {'fleet': {'assignment': {'name': 'blocks', 'mix': 'a2-b8'}}}
    >>> merged([{"method": {"orthogonality": 0}}, {"method": {"name": "flanc"}}])
    {'method': {'orthogonality': 0, 'name': 'flanc'}}
    """
    found: Table = {}
    for layer in layers:
        for section, value in layer.items():
            before = found.get(section)
            if (
                not isinstance(value, Mapping)
                or not isinstance(before, Mapping)
                or ("name" in before and "name" in value)
            ):
                found[section] = value
            else:
                found[section] = {**before, **{key: optioned(before.get(key), value[key]) for key in value}}
    return found


def optioned(before: Any, value: Any) -> Any:
    """A value, with what stood there if only one of them names a thing."""
    old, new = ({"name": each} if isinstance(each, str) else each for each in (before, value))
    if not isinstance(old, Mapping) or not isinstance(new, Mapping) or ("name" in old) == ("name" in new):
        return value
    return {**old, **new}
