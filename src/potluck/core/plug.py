"""Finding things by name: ours by a short name, anybody's by `package.module:attribute` (or `.attribute`)."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable
from pathlib import Path

from potluck.core.errors import ConfigError


def hint(name: str, known: Iterable[str]) -> str:
    """Which of the known names was probably meant, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"there are {', '.join(known) or 'none'}"


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """A sentence that says a name is unknown and which one was probably meant."""
    return f"there is no {kind} '{name}'; {hint(name, sorted(known))}"


def is_path(name: str) -> bool:
    """Whether a name is a path to somebody's own thing."""
    return ":" in name or "." in name


def import_attribute(path: str, kind: str) -> object:
    """What `package.module:attribute` names; modules beside the working directory count as importable."""
    module_name, _, attribute = path.partition(":") if ":" in path else path.rpartition(".")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise ConfigError(f"cannot load {kind} '{path}': {error}; expected 'package.module:name'") from error
    return found
