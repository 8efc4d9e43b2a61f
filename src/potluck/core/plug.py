"""Finding things by name: ours by a short name, anybody's by `package.module:attribute`."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable
from pathlib import Path

from potluck.core.errors import ConfigError


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """A sentence that says a name is unknown and which one was probably meant."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
    return f"there is no {kind} '{name}'; {hint}"


def import_attribute(path: str, kind: str) -> object:
    """What `package.module:attribute` names; modules beside the working directory count as importable."""
    module_name, _, attribute = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"cannot load {kind} '{path}': {error}; expected 'package.module:name'") from error
    return found
