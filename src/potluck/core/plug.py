"""Finding things by name: ours by a short name, anybody's by `package.module:attribute` (or `.attribute`).

A short name is looked up in a list and runs nothing. A path runs code, so somebody must have said that it may.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

from potluck.core.errors import ConfigError

LONGEST = 2000  # letters of a list of names: a table may have a million columns


def hint(name: str, known: Iterable[str]) -> str:
    """Which of the known names was probably meant, or all of them."""
    known = list(known)
    lower = {each.lower(): each for each in reversed(known)}
    close = difflib.get_close_matches(name, known, n=1)
    close = close or [lower[each] for each in difflib.get_close_matches(name.lower(), lower, n=1)]
    return f"did you mean '{close[0]}'?" if close else f"there are {enumerated(known)}"


def enumerated(names: Iterable[str], room: int = LONGEST) -> str:
    """Names in a sentence, as many as there is room for.

    >>> enumerated(["one", "two", "three", "four"], 10), enumerated([])
    ('one, two … and 2 more', 'none')
    """
    names = list(names)
    ends = accumulate(len(name) + len(", ") for name in names)
    told = names[: max(1, sum(end <= room for end in ends))]
    more = f" … and {len(names) - len(told):,} more" if len(told) < len(names) else ""
    return f"{', '.join(told) or 'none'}{more}"


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """A sentence that says a name is unknown and which one was probably meant."""
    return f"there is no {kind} {name!r}; {hint(name, sorted(known))}"


def is_path(name: str) -> bool:
    """Whether a name is a path to somebody's own thing."""
    return ":" in name or "." in name


def import_attribute(path: str, kind: str, *, trusted: bool) -> object:
    """What `package.module:attribute` names; modules beside the working directory count as importable.

    This is the only place where a name becomes code. Nothing is imported, or looked for in the working directory,
    unless the path is trusted: the user typed it, or vouches for the file that it is from.
    """
    if not trusted:
        raise ConfigError(
            f"{kind} {path!r} names code, which is not run just because a file says so: it may be a stranger's; if you "
            "trust whoever wrote it, add --trust to the same command (in Python: trust=True)"
        )
    module_name, _, attribute = path.partition(":") if ":" in path else path.rpartition(".")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError, TypeError, SyntaxError) as error:
        raise ConfigError(f"cannot load {kind} {path!r}: {error}; expected 'package.module:name'") from error
    except (Exception, SystemExit) as error:  # whatever a module does as it is imported
        raise ConfigError(f"cannot load {kind} {path!r}: {type(error).__name__}: {error}") from error
    return found
