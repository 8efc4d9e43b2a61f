"""Data sources and networks by the names that configs use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields, make_dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import nn

from potluck.core import machine
from potluck.core.errors import ConfigError, DataError, ModelError
from potluck.core.inputs import Inputs, tensors_of
from potluck.core.plug import is_path
from potluck.data import sources
from potluck.data.dataset import Dataset
from potluck.data.sources.table import NAME as TABLE
from potluck.data.sources.table import load_table
from potluck.models.catalogue import find_model
from potluck.parts.cut.channels import Rounding
from potluck.parts.shrink.shrinkable import Shrinkable
from potluck.study.config import name_of, options_of
from potluck.study.makers import called, imported
from potluck.study.schema import NOWHERE, Origin, Table, read_table, unknown_key
from potluck.study.settings import Named

Model = Callable[[float], nn.Module]
"""A network at every width."""


def load_source(named: Named, data_dir: Path | None, setting: str = "source", origin: Origin = NOWHERE) -> Dataset:
    """A data set by name, or by path to a function that returns one."""
    name, options, section = name_of(named), options_of(named), f"data.{setting}"
    if not is_path(name):
        load = load_table if name == TABLE else partial(sources.load, name, data_dir)
        given = options_of_ours(load_table if name == TABLE else sources.load, options, section, name, origin)
        try:
            return load(**given)
        except DataError as error:
            raise DataError(f"{origin.about('data')}{setting}: {error}{origin.place('data', setting)}") from error
    function = imported(name, "data", setting, Dataset, origin)
    given = known_options(function, options, section, name, origin)
    data = called(function, given, DataError, f"[data] {setting} '{name}'")
    if not isinstance(data, Dataset):
        raise ConfigError(f"[data] {setting} '{name}' returns {type(data).__name__}, but it should return a Dataset")
    return data


def model_factory(name: str, options: Table, example: Inputs, classes: int | None, origin: Origin = NOWHERE) -> Model:
    """A network by name, or by path to the user's own: a function of the width, or a plain network.

    Whoever builds it is told the input's shape and the number of classes, if it asks for them.
    """
    if not is_path(name):
        return ours(name, options, example, classes, origin)
    return factory_of(imported(name, "task", "model", nn.Module, origin), options, example, classes, name, origin)


def factory_of(
    found: Callable[..., Any], options: Table, example: Inputs, classes: int | None, name: str, origin: Origin
) -> Model:
    """A network at every width, from a function of the width, a class, or a plain network."""
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    if takes_width(found):
        chosen = known_options(found, given, "task.model", name, origin)
        return partial(found, **{**told_of_data(found, example, classes), **chosen})
    how = {key: given.pop(key) for key in SHRINKING if key in given}
    if not isinstance(found, nn.Module):
        chosen = known_options(found, given, "task.model", name, origin)
        net = made(found, {**told_of_data(found, example, classes), **chosen}, name)
    elif given:
        raise unknown_key("task.model", name, next(iter(given)), list(SHRINKING), origin)
    else:
        net = found
    if not isinstance(net, nn.Module):
        raise ModelError(f"{name} makes a {type(net).__name__}, but it should make an nn.Module")
    return read_table(Shrinking, how, "task.model", name, origin).of(net, example)


def ours(name: str, options: Table, example: Inputs, classes: int | None, origin: Origin) -> Model:
    """A network of ours at every width."""
    try:
        found = find_model(name)
    except ConfigError as error:
        raise ConfigError(f"{origin.about('task')}{error}{origin.place('task', 'model')}") from error
    given = options_of_ours(found, options, "task.model", name, origin)
    make = partial(found, **{**told_of_data(found, example, classes), **given})
    require_room(make, name, origin)
    return make


def require_room(make: Model, name: str, origin: Origin) -> None:
    """Refuse a network whose weights this machine could not hold, before any of them is made."""
    try:
        with torch.device("meta"):
            net = make(1.0)
        needed = sum(tensor.numel() * tensor.element_size() for tensor in net.state_dict().values())
    except (RuntimeError, ValueError, TypeError) as error:  # sizes that overflow, or do not go together
        raise ModelError(
            f"{origin.about('task.model')}{name} cannot be built: {error}{origin.place('task', 'model')}"
        ) from error
    there = machine.memory()
    if needed > there:
        raise ModelError(
            f"{origin.about('task.model')}the weights of {name} would take {needed / 2**30:,.0f} GiB, but this machine "
            f"has {there / 2**30:,.0f}; make it smaller{origin.place('task', 'model')}"
        )


def made(factory: Callable[..., Any], options: Table, name: str) -> Any:
    """What a factory makes; one that needs more than it is told is named."""
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise ModelError(
            f"{name} cannot be built: {error}; give its arguments defaults, call one 'width', 'shape' or 'classes' to "
            "be told it, or give a network that is built already"
        ) from error
    return called(factory, options, ModelError, f"[task] model '{name}'")


def takes_width(found: object) -> bool:
    """Whether it is a function of the width: it has a `width`, or it is no class and has a first argument."""
    if isinstance(found, nn.Module):
        return False
    parameters = inspect.signature(found).parameters  # type: ignore[arg-type]
    first = any(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters.values())
    return "width" in parameters or (first and not (inspect.isclass(found) and issubclass(found, nn.Module)))


def told_of_data(factory: Callable[..., Any], example: Inputs, classes: int | None) -> Table:
    """What a network is told of the data, if it asks."""
    asked = inspect.signature(factory).parameters
    told: Table = {"shape": tuple(tensors_of(example)[0].shape[1:]), "classes": classes or None}
    return {key: value for key, value in told.items() if key in asked and value is not None}


@dataclass(frozen=True)
class Shrinking:
    """How a plain network is made narrower."""

    keep: tuple[str, ...] = ()
    rounding: Rounding = "ceil"

    def of(self, net: nn.Module, example: Inputs) -> Shrinkable:
        return Shrinkable(net, example, self.keep, self.rounding)


SHRINKING = tuple(each.name for each in fields(Shrinking))


def options_of_ours(function: Callable[..., Any], options: Table, section: str, owner: str, origin: Origin) -> Table:
    """The options, if a function of ours takes all of them, of these types and in these ranges."""
    hints = get_type_hints(function, include_extras=True)
    named = [each for each in inspect.signature(function).parameters.values() if each.kind is each.KEYWORD_ONLY]
    fields_of_ours = [(each.name, hints[each.name], field(default=each.default)) for each in named]
    schema: type[Any] = make_dataclass("Options", fields_of_ours)
    chosen = read_table(schema, options, section, owner, origin)
    return {key: getattr(chosen, key) for key in options}


def known_options(function: Callable[..., Any], options: Table, section: str, owner: str, origin: Origin) -> Table:
    """The options, if somebody's function takes all of them."""
    parameters = inspect.signature(function).parameters.values()
    named = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    if not takes_width(function):
        named += [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    for key in options:
        if key not in named and not takes_any:
            raise unknown_key(section, owner, key, named, origin)
    return options
