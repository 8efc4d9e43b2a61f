"""Reading the text files of a run: whoever wrote them, they cost no more than they should, and errors name them."""

from __future__ import annotations

import json
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from potluck.core.errors import RunError
from potluck.study.schema import Table

LARGEST = 1 << 18  # bytes of a settings or costs file; a thousand levels take less
DEEPEST = 16  # tables within tables
MOST_DOTS = 100  # in a line: TOML's reader takes time that grows with the square of a dotted key's length
HUGE = 1e30  # beyond any figure of a run


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A plain file, open for reading."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise RunError(f"cannot read {path}: it is not a plain file; restore it")
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error


def read_text(path: Path) -> str:
    """The text of a file that is not larger than it should be."""
    with opened(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise RunError(f"{path} is damaged: it has more than {LARGEST} bytes; restore it")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is damaged: byte {error.start} is not text; restore it") from error


def read_toml(path: Path) -> Table:
    """A TOML file of ours, or an error that names it."""
    text = read_text(path)
    if any(line.count(".") > MOST_DOTS for line in text.splitlines()):
        raise RunError(f"{path} is damaged: it is nested deeper than {DEEPEST} tables; restore it")
    try:
        table: Table = json.loads(json.dumps(tomllib.loads(text), default=str))  # dates, which we never write, as text
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}; restore it") from error
    require_shallow(table, path)
    return table


def read_json(path: Path) -> Any:
    """What a JSON file of ours holds, or an error that names it."""
    found = parsed(read_text(path), str(path))
    require_shallow(found, path)
    return found


def parsed(text: str | bytes, where: str) -> Any:
    """What JSON text says, or an error that names where it stands."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where} is damaged: {error}; restore it") from error


def require_shallow(value: Any, path: Path) -> None:
    """Refuse what is nested deeper than anything that we write."""
    if is_deep(value, DEEPEST):
        raise RunError(f"{path} is damaged: it is nested deeper than {DEEPEST} tables; restore it")


def is_deep(value: Any, most: int) -> bool:
    """Whether tables and lists are nested deeper than this.

    >>> is_deep({"a": [1]}, 2), is_deep({"a": [[1]]}, 2)
    (False, True)
    """
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return inner is not None and (most == 0 or any(is_deep(each, most - 1) for each in inner))


def is_number(value: Any) -> bool:
    """Whether a value is a number that can be reckoned with.

    >>> is_number(3), is_number(True), is_number("3"), is_number(10**400)
    (True, False, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and -HUGE < value < HUGE
