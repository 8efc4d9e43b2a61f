"""How clients train, as settings: read with the options of an optimiser and a schedule, and written down as plain data.

Whatever a user gives, a name, a class or a function, ends up as names and numbers. Only an optimiser that is not one of
ours is code, and goes by its path.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import torch
from annotated_types import Interval
from torch import nn

from potluck.core.blame import foreign_failure
from potluck.core.errors import ConfigError
from potluck.core.fit import MOMENTUM, optimizer_of
from potluck.core.optimizers import COMMON, NAMED, Kind, Rule, frozen, rule_of, takes
from potluck.core.plug import is_path
from potluck.core.ranges import LARGEST, Factor, Should
from potluck.core.types import Train, everything
from potluck.study.makers import imported
from potluck.study.schema import Origin, Table, as_table, fields_of, read_table, shown, unknown_key

SECTION = "train.optimizer"
Share = Annotated[float, Interval(ge=0, lt=1)]
Betas = Annotated[tuple[Share, Share], Should("a list of two numbers, each at least 0 and below 1")]


@dataclass(frozen=True)
class SGD:
    """Options of SGD."""

    nesterov: bool = False


@dataclass(frozen=True)
class Adam:
    """Options of Adam and AdamW."""

    betas: Betas = (0.9, 0.999)
    eps: Factor = 1e-8
    amsgrad: bool = False


@dataclass(frozen=True)
class Adagrad:
    """Options of Adagrad."""

    lr_decay: Factor = 0.0
    initial_accumulator_value: Factor = 0.0
    eps: Factor = 1e-10


@dataclass(frozen=True)
class RMSprop:
    """Options of RMSprop."""

    alpha: Annotated[float, Interval(ge=0, le=1)] = 0.99
    eps: Factor = 1e-8
    centered: bool = False


OPTIONS: dict[str, type] = {"sgd": SGD, "adam": Adam, "adamw": Adam, "adagrad": Adagrad, "rmsprop": RMSprop}


def read_train(table: Mapping[str, Any], origin: Origin, rounds: int) -> Train:
    """Settings of training, all of them checked, also against each other."""
    rest = {key: value for key, value in table.items() if key != "optimizer"}
    if callable(rest.get("schedule")):
        rest["schedule"] = factors(rest["schedule"], rounds)
    train = read_table(Train, rest, "train", "", origin)
    train = replace(train, optimizer=read_optimizer(table.get("optimizer", "sgd"), origin))
    require_common(train, origin)
    return settled(train)


def read_optimizer(given: Any, origin: Origin) -> Rule:
    """The optimiser that a user means, its options checked: of ours their values, of any other their names."""
    named = {"name": given} if isinstance(given, str) else given
    if isinstance(named, Mapping) and is_path(str(named.get("name", ""))):
        kind = imported(str(named["name"]), "train", "optimizer", torch.optim.Optimizer, origin)
        given = partial(kind, **{key: value for key, value in named.items() if key != "name"})
    try:
        rule = rule_of(given)
    except ConfigError as error:
        raise ConfigError(f"{origin.about('train')}{error}{origin.place('train', 'optimizer')}") from error
    options = dict(rule.options)
    if rule.name in OPTIONS:
        checked: object = read_table(OPTIONS[rule.name], options, SECTION, rule.name, origin)
        return Rule(rule.kind, frozen({key: getattr(checked, key) for key in fields_of(type(checked))}))
    for key in options:
        if not takes(rule.kind, key):
            raise unknown_key(SECTION, rule.name, key, own_options(rule.kind), origin)
    return rule


def own_options(kind: Kind) -> list[str]:
    """What a class of optimisers can be given beside parameters and what all optimisers have."""
    return [name for name in list(inspect.signature(kind).parameters)[1:] if name not in COMMON]


def require_common(train: Train, origin: Origin) -> None:
    """Refuse a setting that the optimiser has no use for, or lacks."""
    kind, name, rule = train.rule.kind, train.rule.name, dict(train.rule.options)
    wrong = {
        f"optimizer is {name!r}, but it takes no lr; choose a class that does": not takes(kind, "lr"),
        f"momentum is {train.momentum}, but {name} has none; leave it out": train.momentum
        and not takes(kind, "momentum"),
        f"weight_decay is {train.weight_decay}, but {name} has none; set it to 0": train.weight_decay
        and not takes(kind, "weight_decay"),
        "momentum is 0, but optimizer asks for Nesterov's; set it above 0, such as 0.9": rule.get("nesterov")
        and train.momentum == 0,
    }
    for sentence, is_wrong in wrong.items():
        if is_wrong:
            place = origin.place("train", sentence.partition(" ")[0])
            raise ConfigError(f"{origin.about('train')}{sentence}{place}")


def settled(train: Train) -> Train:
    """The settings with the momentum that is in effect, where the optimiser has one."""
    if train.rule.kind is torch.optim.SGD:
        return train if train.momentum is not None else replace(train, momentum=MOMENTUM)
    return train if takes(train.rule.kind, "momentum") else replace(train, momentum=None)


def factors(schedule: Callable[[int], float], rounds: int) -> list[float]:
    """What a function multiplies the rate with, round by round, up to where it stays the same."""
    found = [factor_of(schedule, round) for round in range(rounds)]
    while len(found) > 1 and found[-1] == found[-2]:
        del found[-1]
    return found


def factor_of(schedule: Callable[[int], float], round: int) -> float:
    """What a function multiplies the rate of a round with."""
    try:
        value = schedule(round)
        factor = float(value)
    except Exception as error:
        raise ConfigError(f"train: schedule({round}) fails: {foreign_failure(error) or error}") from error
    if not (math.isfinite(factor) and 0 <= factor <= LARGEST):
        raise ConfigError(f"train: schedule({round}) is {shown(value)}, but it should be a number from 0 to 1e30")
    return factor


def train_table(train: Train) -> Table:
    """The settings as plain data, as they are in effect: for the record, and for what two machines must agree on."""
    table = as_table(replace(settled(train), optimizer="sgd"))
    options = json.loads(json.dumps(dict(train.rule.options)))
    return {**table, "optimizer": {"name": train.rule.name, **options}}


def require_steps(train: Train, net: nn.Module) -> None:
    """Refuse a class of somebody's that training cannot use: one that does not take such parameters or these options,
    or whose step asks for more than gradients."""
    if train.rule.kind in NAMED.values():
        return
    dims = {parameter.dim() for parameter in net.parameters() if parameter.requires_grad}
    weights = [torch.ones((2,) * dim, requires_grad=True) for dim in sorted(dims)]
    try:
        optimizer = optimizer_of([(str(number), each) for number, each in enumerate(weights)], everything, train)
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        optimizer.step()
    except Exception as error:
        reason = foreign_failure(error) or f"{type(error).__name__}: {error}"
        raise ConfigError(f"optimizer {train.rule.name} cannot train this network: {reason}") from error
