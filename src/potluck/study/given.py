"""What a user hands to `potluck.run`, checked and turned into what an experiment is made of."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, update_wrapper
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from potluck import methods
from potluck.core.data import Arrays, Examples, Part, columns_of, rows
from potluck.core.errors import ConfigError, DataError
from potluck.core.fleet import Assignment
from potluck.core.goals.goal import Goal
from potluck.core.method import Method
from potluck.core.networks import ByWidth
from potluck.core.plug import unknown
from potluck.core.random import seeded, stream
from potluck.core.types import Level, Train
from potluck.data import sources
from potluck.data.assignment import assignment_named
from potluck.data.dataset import Dataset
from potluck.data.fitting import require_fitting
from potluck.data.named import require_names
from potluck.data.own import examples_from
from potluck.data.tables.read import is_table_file
from potluck.study.config import name_of, options_of, read_plug
from potluck.study.experiment import facts_of
from potluck.study.networks import factory_of, model_factory
from potluck.study.recipes import Model
from potluck.study.schema import PYTHON, fields_of, read_table, shown
from potluck.study.settings import Named
from potluck.study.training import read_train

Checked = TypeVar("Checked")


def as_levels(levels: Any) -> dict[str, float]:
    """The user's levels, if they have names."""
    if not isinstance(levels, Mapping):
        raise ConfigError(
            f"levels is {shown(levels)}, but it should be a dictionary from names of device classes to ratios, such as "
            "{'server': 1.0, 'phone': 0.5}"
        )
    if not levels:
        raise ConfigError("levels is empty; name at least one device class, such as {'server': 1.0}")
    return dict(levels)


def as_method(method: Any) -> Method:
    """The user's method, by name or ready-made, its settings checked."""
    if isinstance(method, Method):
        return recheck(method, "method")
    if not isinstance(method, str) and not (isinstance(method, dict) and isinstance(method.get("name"), str)):
        raise ConfigError(
            f"method is {shown(method)}, but it should be a name, such as 'heterofl', a dictionary with a name and "
            "options, or an instance of a method"
        )
    chosen: Method = read_plug(partial(methods.find, trusted=True), method, "method", PYTHON)
    return chosen


def as_plug(find: Callable[[str], Any], given: Any, setting: str, arguments: str) -> Any:
    """A rule by name, with its options, or a function of the user's."""
    if isinstance(given, str | dict):
        return read_plug(find, given, setting, PYTHON)
    if not callable(given):
        raise ConfigError(
            f"{setting} is a {type(given).__name__}, but it should be a name, a dictionary with a name and options, or "
            f"a function of {arguments}"
        )
    require_arguments(given, setting, arguments)
    return given


class OfFleet:
    """A function of the user's as an assignment: it gives levels to the whole fleet."""

    per_cohort: ClassVar[bool] = False

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        update_wrapper(self, function)  # a record has its name

    def __call__(self, clients: int, levels: tuple[Level, ...], round: int, seed: int) -> Tensor:
        given = self.function(clients, levels, round, seed)
        try:
            found = torch.as_tensor(given)
            fits = found.shape == (clients,) and bool((found == found.long()).all())
        except (TypeError, ValueError, RuntimeError):
            fits = False
        if not fits:
            raise ConfigError(
                f"assignment gives {shown(given)}, but it should give a level's number for each of {clients} clients"
            )
        if len(wrong := found[(found < 0) | (found >= len(levels))]):
            raise ConfigError(
                f"assignment gives a client level {int(wrong[0])}, but they are numbered from 0 to {len(levels) - 1}"
            )
        return found.long()


def as_assignment(given: Any) -> Assignment:
    """An assignment by name, with its options, or a function of the user's."""
    found = as_plug(assignment_named, given, "assignment", "(clients, levels, round, seed)")
    return found if hasattr(found, "per_cohort") else OfFleet(found)


def require_arguments(function: Callable[..., Any], setting: str, arguments: str) -> None:
    """Refuse a function that does not take what it will be given."""
    try:
        taken = inspect.signature(function)
    except (TypeError, ValueError):  # of some that are not written in Python nobody knows
        return
    try:
        taken.bind(*arguments.split(", "))
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise ConfigError(f"{setting} is {name}{taken}, but it should take {arguments}: {error}") from error


def as_settings(schema: type[Checked], given: Any, section: str) -> Checked:
    """Settings from an instance or a dictionary, checked either way."""
    return read_table(schema, table_of(schema, given, section), section, "", PYTHON)


def as_train(given: Any, rounds: int) -> Train:
    """How clients train, from an instance or a dictionary; a schedule may be a function of the round."""
    return read_train(table_of(Train, given, "train"), PYTHON, rounds)


def table_of(schema: type[Any], given: Any, section: str) -> Mapping[str, Any]:
    """Settings as a table that is yet to be checked, from an instance, a dictionary or nothing."""
    if given is None or isinstance(given, Mapping):
        return given or {}
    if not isinstance(given, schema):
        raise ConfigError(
            f"{section} is {shown(given)}, but it should be a potluck.{schema.__name__} or a dictionary of its settings"
        )
    return values_of(given)


def model_name(model: Any) -> Named | None:
    """What names a network of Potluck's or an importable one, as in a config; None if it is the network itself."""
    if isinstance(model, str) or (isinstance(model, dict) and isinstance(model.get("name"), str)):
        return model
    return None


def as_model(model: Any, data: Dataset, seed: int) -> Model:
    """The user's network. A class that does not ask for a width is built once, as it is where a config names it."""
    facts, named = facts_of(data), model_name(model)
    with seeded(seed, "model"):
        if named is not None:
            return ByWidth(model_factory(name_of(named), options_of(named), facts.example[0], facts.classes, PYTHON))
        if isinstance(model, type):
            return ByWidth(factory_of(model, {}, facts.example[0], facts.classes, model.__name__, PYTHON))
    if not callable(model) and not isinstance(model, Mapping):
        raise ConfigError(
            f"model is {shown(model)}, but it should be a network, a function of the width that makes one, a name, "
            "such as 'heterofl-cnn', or a dictionary with a network for every level"
        )
    given: Model = model
    return given


def as_proxy(data: Any) -> Examples:
    """Public examples, from whatever a user has."""
    if isinstance(data, Dataset):
        return data.train
    return sources.load(data).train if is_source(data) else examples_from(data)


def is_source(data: Any) -> bool:
    """Whether this is the name of a data set that Potluck knows; a name that could be neither that nor a folder's is
    refused."""
    if not isinstance(data, str):
        return False
    known = {each.name for each in sources.catalogue()}
    if data not in known and os.sep not in data and not Path(data).is_dir() and not is_table_file(data):
        raise DataError(f"there is no folder '{data}', and {unknown('data set', data, known)}")
    return data in known


def as_dataset(data: Any, test: Any, seed: int, goal: Goal | None = None) -> Dataset:
    """The user's data, divided into what clients hold and what models are scored on."""
    if isinstance(data, Dataset):
        return data
    if is_source(data):
        return sources.load(data)
    examples = examples_from(data)
    require_fitting(examples, goal, "data")
    if isinstance(test, int | float):
        kept, scored = hold_out(examples, test, seed)
    else:
        kept, scored = examples, test_examples(test)
        require_names(kept, "data", scored, "test")
        require_fitting(scored, goal, "test")
    return Dataset(kept, scored)


def test_examples(test: Any) -> Examples:
    """Examples to score on; what is wrong with them is told as theirs."""
    try:
        found: Examples = examples_from(test)
    except DataError as error:
        raise DataError(f"test: {error}") from error
    return found


def hold_out(examples: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Examples to train on and a random share of them to score on."""
    held = math.ceil(len(examples) * share) if math.isfinite(share) else 0
    if not 0 < held < len(examples):
        raise DataError(
            f"test is {share}, which would hold out {held} of {len(examples)} examples, but some should be left on "
            "either side; give a share between 0 and 1, such as 0.2, or test examples"
        )
    order = torch.randperm(len(examples), generator=stream(seed, "test"))
    return chosen(examples, order[held:]), chosen(examples, order[:held])


def chosen(examples: Examples, index: Tensor) -> Examples:
    """Some of the examples: copied where all columns are in memory, so that the whole need not be kept."""
    if not isinstance(examples, Arrays) or not all(isinstance(each, Tensor) for each in columns_of(examples)):
        return Part(examples, index)
    return replace(examples, inputs=rows(examples.inputs, index), targets=rows(examples.targets, index))


def recheck(settings: Checked, section: str) -> Checked:
    """The same settings with types and ranges checked, which their constructor does not do."""
    return read_table(type(settings), values_of(settings), section, type(settings).__name__, PYTHON)


def values_of(settings: object) -> dict[str, Any]:
    """The values of settings, but for those that are not given."""
    values = ((name, getattr(settings, name)) for name in fields_of(type(settings)))
    return {name: value for name, value in values if value is not None}
