"""Optimisers: some by name, any other by its class, each with options of its own.

The rate, the momentum and the weight decay are no options: they are settings of `Train`, whatever the optimiser.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from potluck.core.errors import ConfigError
from potluck.core.plug import is_path, unknown

Kind = type[torch.optim.Optimizer]
Groups = list[dict[str, Any]]

NAMED: dict[str, Kind] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}
AT_ONCE: dict[Kind, str] = {
    torch.optim.Adam: "fused",
    torch.optim.AdamW: "fused",
    torch.optim.Adagrad: "fused",
    torch.optim.RMSprop: "foreach",
}
"""How an optimiser is told to go through all parameters in single operations."""
COMMON = ("lr", "momentum", "weight_decay")
WANTED = (
    f"a name ({', '.join(NAMED)}), a table of a name and options, a class of torch.optim.Optimizer, or "
    "functools.partial of such a class"
)


@dataclass(frozen=True)
class Rule:
    """How a step follows from gradients: a class of optimisers, and the options that only it has."""

    kind: Kind
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def elementwise(self) -> bool:
        """Whether it is known that each number's step depends on that number's own gradients alone."""
        return self.kind in NAMED.values()

    @property
    def name(self) -> str:
        """What a configuration calls the class: a short name, or `module:name`."""
        short = next((name for name, kind in NAMED.items() if kind is self.kind), None)
        return short or f"{self.kind.__module__}:{self.kind.__qualname__}"


def rule_of(given: object) -> Rule:
    """The rule that a user means by a name, by a table of a name and options, or by a class.

    >>> rule_of(partial(torch.optim.AdamW, eps=1e-6))
    Rule(kind=<class 'torch.optim.adamw.AdamW'>, options=(('eps', 1e-06),))
    """
    if isinstance(given, Rule):
        return given
    if isinstance(given, str):
        return Rule(kind_named(given))
    if isinstance(given, Mapping) and isinstance(given.get("name"), str):
        return Rule(kind_named(given["name"]), frozen({key: value for key, value in given.items() if key != "name"}))
    kind, options = (given.func, given.keywords) if isinstance(given, partial) and not given.args else (given, {})
    if isinstance(given, torch.optim.Optimizer):
        raise ConfigError(
            f"optimizer is one that is made already, but every client makes one of its own: give the class "
            f"{type(given).__name__} instead"
        )
    if not isinstance(kind, type) or not issubclass(kind, torch.optim.Optimizer):
        raise ConfigError(f"optimizer is {given!r}, but it should be {WANTED}")
    return Rule(kind, frozen(options))


def kind_named(name: str) -> Kind:
    """The class that has a short name."""
    if name in NAMED:
        return NAMED[name]
    if is_path(name):
        raise ConfigError(f"optimizer is {name!r}, a path to a class; here it should be the class itself")
    raise ConfigError(unknown("optimizer", name, NAMED))


def frozen(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Options that can be written down and do not change, in the order of their names."""
    for key in options:
        if key in COMMON:
            raise ConfigError(f"optimizer has an option {key!r}, but {key} is a setting beside optimizer: set it there")
    return tuple((key, plain(key, options[key])) for key in sorted(options))


def plain(key: str, value: Any) -> Any:
    """An option's value, if a file can hold it."""
    if isinstance(value, list | tuple):
        return tuple(plain(key, each) for each in value)
    if not isinstance(value, bool | int | float | str):
        raise ConfigError(
            f"optimizer has {key} = {value!r}, but an option should be a number, text, True, False or a list of those: "
            "it is written down with the run"
        )
    return value


def make(rule: Rule, groups: Groups, lr: float, momentum: float | None, real: bool) -> torch.optim.Optimizer:
    """A fresh optimiser for groups of parameters, which are memory or (not real) mere shapes."""
    options = dict(rule.options)
    if momentum is not None and takes(rule.kind, "momentum"):
        options["momentum"] = momentum
    if rule.kind in AT_ONCE:
        options[AT_ONCE[rule.kind]] = real
    return rule.kind(groups, lr=lr, **options)  # type: ignore[call-arg]


def takes(kind: Kind, option: str) -> bool:
    """Whether an optimiser can be given an option."""
    known = inspect.signature(kind).parameters.values()
    return any(each.name == option or each.kind is each.VAR_KEYWORD for each in known)
