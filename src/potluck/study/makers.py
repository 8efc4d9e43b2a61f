"""What a config names that makes a network or data: imported if trusted, looked at, and only then called."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from potluck.core.blame import LIBRARY, PACKAGES, foreign_failure
from potluck.core.errors import ConfigError, PotluckError
from potluck.core.plug import import_attribute
from potluck.study.schema import Origin, Table


def imported(path: str, section: str, key: str, makes: type, origin: Origin) -> Any:
    """What a path in a config names, if it is trusted and can make such a thing; it is not called."""
    try:
        found = import_attribute(path, key, trusted=origin.trusts(section, key))
        if not is_maker(found, makes):
            raise ConfigError(f"{key} {path!r} is no function or class that makes a {makes.__name__}")
    except ConfigError as error:
        raise ConfigError(f"{origin.about(section)}{error}{origin.place(section, key)}") from error
    return found


def called(function: Callable[..., Any], given: Table, kind: type[PotluckError], name: str) -> Any:
    """What somebody's function makes; if it fails, that is no fault of ours."""
    try:
        return function(**given)
    except PotluckError:
        raise
    except Exception as error:
        raise kind(f"{name} fails: {foreign_failure(error) or error}") from error


def is_maker(found: object, makes: type) -> bool:
    """Whether something may be called for such a thing: a class of them, or a function that is not Python's own and
    does not say that it returns something else."""
    while isinstance(found, functools.partial):
        found = found.func
    if isinstance(found, type):
        return issubclass(found, nn.Module if makes is Tensor else makes)  # a module is a function of tensors
    return callable(found) and not is_pythons(found) and has_signature(found) and may_return(found, makes)


def is_pythons(function: object) -> bool:
    """Whether a function comes with Python."""
    code = getattr(function, "__code__", None)
    if code is None:
        return inspect.isbuiltin(function)
    file = Path(code.co_filename)
    is_in_library = file.is_relative_to(LIBRARY) and not file.is_relative_to(PACKAGES)
    return is_in_library or code.co_filename.startswith("<frozen")


def has_signature(function: Callable[..., Any]) -> bool:
    """Whether it can be known what a function takes."""
    try:
        inspect.signature(function)
    except (TypeError, ValueError):
        return False
    return True


def may_return(function: object, wanted: type) -> bool:
    """Whether a function's annotations allow that it returns such a thing; without annotations it may."""
    try:
        told = typing.get_type_hints(function).get("return")
    except Exception:  # annotations may be anything, also names of things that are not there
        return True
    told = typing.get_origin(told) or told
    if not isinstance(told, type) or told is types.UnionType:
        return True
    return issubclass(told, wanted) or issubclass(wanted, told)
