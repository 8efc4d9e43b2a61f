"""One paper, one file. `load("heterofl")` finds `methods/heterofl.py`; a dotted path finds a stranger's."""

from __future__ import annotations

import pkgutil

from potluck.core.errors import ConfigError
from potluck.core.method import Method
from potluck.core.plug import import_attribute, is_path, unknown


def names() -> list[str]:
    """The methods that come with Potluck."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find(name: str, *, trusted: bool = False) -> type[Method]:
    """The method of this name: one of ours, or, if it is trusted, `package.module:Class` (or `.Class`) of anyone's."""
    if is_path(name):
        found = import_attribute(name, "method", trusted=trusted)
    elif name in names():
        module = __import__(f"{__name__}.{name}", fromlist=["*"])
        own = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
        found = next(cls for cls in own if issubclass(cls, Method))
    else:
        raise ConfigError(unknown("method", name, names()))
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ConfigError(f"method '{name}' is not a subclass of potluck.Method")
    return found
