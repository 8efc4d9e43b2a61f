"""Reading the text files of a run: whoever wrote them, they cost no more than they should, and errors name them."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from potluck.core.errors import ConfigError, RunError
from potluck.study.schema import DEEPEST, Table, shown

LARGEST = 1 << 22  # bytes of a settings or costs file: the largest config, with every default and a line per value
MOST_DOTS = 2000  # of a line: TOML's reader takes time and memory that grow with the square of a dotted key's length
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


def read_text(path: Path, most: int = LARGEST) -> str:
    """The text of a file that is not larger than it should be."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise RunError(f"{path} is damaged: it has more than {most} bytes; restore it")
        content = file.read()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is damaged: byte {error.start} is not text; restore it") from error


def read_toml(path: Path) -> Table:
    """A TOML file of ours, or an error that names it."""
    text = read_text(path)
    try:
        table: Table = json.loads(json.dumps(toml_table(text), default=str))  # dates, which we never write, as text
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}; restore it") from error
    require_shallow(table, path)
    return table


def toml_table(text: str) -> Table:
    """What TOML text says, whoever wrote it; what is no TOML, or would take for ever to read, is a `ValueError`."""
    if sum(line.count(".") ** 2 for line in text.split("\n")) > MOST_DOTS**2:
        raise ValueError("it has lines with thousands of dots; write a long list on several lines")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it has too many tables or arrays in each other") from error


def read_json(path: Path, most: int = LARGEST) -> Any:
    """What a JSON file of ours holds, or an error that names it."""
    found = parsed(read_text(path, most), str(path))
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


def as_path(given: object, argument: str) -> Path:
    """A path from what a user hands over."""
    if not isinstance(given, str | os.PathLike):
        raise ConfigError(f"{argument} is {shown(given)}, but it should be a path, as text or pathlib.Path")
    return Path(given)
