"""Data sources and networks by the names that configs use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from potluck.core.errors import ConfigError, ModelError
from potluck.core.plug import import_attribute, is_path
from potluck.data import sources
from potluck.data.dataset import Dataset
from potluck.models.catalogue import find_model
from potluck.parts.cut.channels import Rounding
from potluck.parts.shrink.shrinkable import Shrinkable
from potluck.study.config import name_of, options_of
from potluck.study.schema import Origin, Table, read_table, unknown_key
from potluck.study.settings import Named

Model = Callable[[float], nn.Module]
"""A network at every width."""


def load_source(named: Named, data_dir: Path | None, setting: str = "source") -> Dataset:
    """A data set by name, or by path to a function that returns one."""
    name, options = name_of(named), options_of(named)
    if is_path(name):
        function = import_attribute(name, "data source")
        if not callable(function):
            raise ConfigError(f"[data] {setting} '{name}' is not a function that returns a Dataset")
        data = function(**known_options(function, options, f"data.{setting}", name))
        if not isinstance(data, Dataset):
            raise ConfigError(
                f"[data] {setting} '{name}' returns {type(data).__name__}, but it should return a Dataset"
            )
        return data
    return sources.load(name, data_dir, **known_options(sources.load, options, f"data.{setting}", name))


def model_factory(name: str, options: Table, example: Sequence[Tensor], classes: int | None) -> Model:
    """A network by name, or by path to the user's own: a function of the width, or a plain network.

    Whoever builds it is told the input's shape and the number of classes, if it asks for them.
    """
    found = import_attribute(name, "model") if is_path(name) else find_model(name)
    if not callable(found):
        raise ConfigError(f"[task] model '{name}' is neither a network nor a function that makes one")
    return factory_of(found, options, example, classes, name)


def factory_of(
    found: Callable[..., Any], options: Table, example: Sequence[Tensor], classes: int | None, name: str
) -> Model:
    """A network at every width, from a function of the width, a class, or a plain network."""
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    if takes_width(found):
        return partial(found, **built_with(found, given, example, classes, name))
    how = {key: given.pop(key) for key in SHRINKING if key in given}
    net = found if isinstance(found, nn.Module) else made(found, built_with(found, given, example, classes, name), name)
    if not isinstance(net, nn.Module):
        raise ModelError(f"{name} makes a {type(net).__name__}, but it should make an nn.Module")
    if isinstance(found, nn.Module) and given:
        raise unknown_key("task.model", name, next(iter(given)), list(SHRINKING), Origin())
    return read_table(Shrinking, how, "task.model", name, Origin()).of(net, tuple(example))


def made(factory: Callable[..., Any], options: Table, name: str) -> Any:
    """What a factory makes; one that needs more than it is told is named."""
    try:
        return factory(**options)
    except TypeError as error:
        raise ModelError(
            f"{name} cannot be built: {error}; give its arguments defaults, call one 'width', 'shape' or 'classes' to "
            "be told it, or give a network that is built already"
        ) from error


def takes_width(found: object) -> bool:
    """Whether it is a function of the width: it has a `width`, or it is no class and has a first argument."""
    if isinstance(found, nn.Module):
        return False
    parameters = inspect.signature(found).parameters  # type: ignore[arg-type]
    first = any(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters.values())
    return "width" in parameters or (first and not (inspect.isclass(found) and issubclass(found, nn.Module)))


def built_with(
    factory: Callable[..., Any], options: Table, example: Sequence[Tensor], classes: int | None, name: str
) -> Table:
    """What a network is built with: what it asks for of the data, and the user's options."""
    asked = inspect.signature(factory).parameters
    told: Table = {"shape": tuple(example[0].shape[1:]), "classes": classes}
    told = {key: value for key, value in told.items() if key in asked and value is not None}
    return {**told, **known_options(factory, options, "task.model", name)}


@dataclass(frozen=True)
class Shrinking:
    """How a plain network is made narrower."""

    keep: tuple[str, ...] = ()
    rounding: Rounding = "ceil"

    def of(self, net: nn.Module, example: tuple[Tensor, ...]) -> Shrinkable:
        return Shrinkable(net, example, self.keep, self.rounding)


SHRINKING = tuple(each.name for each in fields(Shrinking))


def known_options(function: Callable[..., Any], options: Table, section: str, owner: str) -> Table:
    """The options, if the function takes all of them."""
    parameters = inspect.signature(function).parameters.values()
    named = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    if not takes_width(function):
        named += [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    for key in options:
        if key not in named and not takes_any:
            raise unknown_key(section, owner, key, named, Origin())
    return options
