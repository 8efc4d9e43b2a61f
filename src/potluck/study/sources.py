"""Data sources and networks by the names that configs use."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from potluck.core.errors import ConfigError, ModelError
from potluck.core.plug import import_attribute, is_path
from potluck.data import sources
from potluck.data.dataset import Dataset
from potluck.models.catalogue import find_model
from potluck.study.config import Named, name_of, options_of
from potluck.study.schema import Origin, Table, unknown_key


def load_source(named: Named, data_dir: Path | None) -> Dataset:
    """A data set by name, or by path to a function that returns one."""
    name, options = name_of(named), options_of(named)
    if is_path(name):
        function = import_attribute(name, "data source")
        if not callable(function):
            raise ConfigError(f"[data] source '{name}' is not a function that returns a Dataset")
        data = function(**known_options(function, options, "data.source", name))
        if not isinstance(data, Dataset):
            raise ConfigError(f"[data] source '{name}' returns {type(data).__name__}, but it should return a Dataset")
        return data
    return sources.load(name, data_dir, **known_options(sources.load, options, "data.source", name))


def model_factory(
    name: str, options: Table, shape: tuple[int, ...], classes: int | None
) -> Callable[[float], nn.Module]:
    """A network by name, or by path to the user's factory; told shape and classes if it asks for them."""
    factory = import_attribute(name, "model") if is_path(name) else find_model(name)
    if isinstance(factory, nn.Module):
        return partial(only_width, factory, name)
    if not callable(factory):
        raise ConfigError(f"[task] model '{name}' is neither a network nor a function of the width")
    asked = inspect.signature(factory).parameters
    told: Table = {"shape": shape, "classes": classes}
    told = {key: value for key, value in told.items() if key in asked and value is not None}
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    return partial(factory, **{**told, **known_options(factory, given, "task.model", name)})


def only_width(net: nn.Module, name: str, width: float) -> nn.Module:
    """A ready-made network at the one width it has."""
    if width != 1:
        raise ModelError(
            f"'{name}' is a ready-made network, which has only width 1; give a function of the width for {width:g}"
        )
    return copy.deepcopy(net)


def known_options(function: Callable[..., Any], options: Table, section: str, owner: str) -> Table:
    """The options, if the function takes all of them."""
    parameters = inspect.signature(function).parameters.values()
    named = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    for key in options:
        if key not in named and not takes_any:
            raise unknown_key(section, owner, key, named, Origin())
    return options
