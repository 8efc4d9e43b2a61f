"""Choosing layers by name: a name stands for a module, and for everything inside it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from potluck.core.errors import ModelError
from potluck.core.plug import unknown

Named = Mapping[str, Collection[str]]
"""The names that each setting lists."""


def is_inside(layer: str, name: str) -> bool:
    """Whether a name stands for a layer or a block around it; the empty name stands for the whole network.

    >>> is_inside("layer1.0.conv", "layer1"), is_inside("layer10.conv", "layer1")
    (True, False)
    """
    return not name or f"{layer}.".startswith(f"{name}.")


def setting_for(layer: str, named: Named) -> str | None:
    """The setting that names a layer most specifically, the first among equals; None if none names it.

    >>> setting_for("body.0", {"whole": ["body"], "compose": ["body.0"]})
    'compose'
    """
    matches = [(len(name), setting) for setting, names in named.items() for name in names if is_inside(layer, name)]
    return max(matches, key=lambda match: match[0])[1] if matches else None


def check_names(named: Named, known: Iterable[str], kind: str = "layer or block") -> None:
    """Refuse names that stand for nothing in the network."""
    known = {"", *known}
    for setting, names in named.items():
        for name in names:
            if name not in known:
                raise ModelError(f"{setting}: {unknown(kind, name, known - {''})}")


def blocks_around(layers: Iterable[str]) -> set[str]:
    """These layers and every block around one of them.

    >>> sorted(blocks_around(["a.0.b", "a.1"]))
    ['a', 'a.0', 'a.0.b', 'a.1']
    """
    paths = [layer.split(".") for layer in layers]
    return {".".join(path[: depth + 1]) for path in paths for depth in range(len(path))}
