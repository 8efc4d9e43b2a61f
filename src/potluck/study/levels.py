"""Levels, and the network that each of them has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from potluck.core.blame import foreign_failure
from potluck.core.errors import ConfigError, ModelError, PotluckError, RunError
from potluck.core.goals.goal import Goal
from potluck.core.method import Method
from potluck.core.networks import ByWidth, Networks
from potluck.core.types import Batch, Context, Level, Task
from potluck.parts.head import check_outputs
from potluck.study.schema import shown

LONGEST_NAME = 50  # characters of up to four bytes: a file's name, with what is put before and after, has 255 bytes

MEAN = "mean"  # what tables call the mean over all levels


def make_levels(levels: Mapping[str, float]) -> tuple[Level, ...]:
    """Levels from names and ratios, each ratio in (0, 1]."""
    if not levels:
        raise ConfigError("levels is empty; name at least one device class, e.g. { server = 1.0 }")
    for name, ratio in levels.items():
        if not re.fullmatch(rf"[\w-][\w .-]{{0,{LONGEST_NAME - 1}}}", name):
            raise ConfigError(
                f"levels has {shown(name)}, but a level gives files their names: use letters, digits, - and _, "
                f"{LONGEST_NAME} of them at most"
            )
        if name == MEAN:
            raise ConfigError(f"levels has '{MEAN}', but tables call the mean over all levels so; choose another name")
        if not 0 < ratio <= 1:
            raise ConfigError(f"level '{name}' has the ratio {ratio!r}, but it should be above 0 and at most 1")
    return tuple(Level(name, float(ratio)) for name, ratio in levels.items())


def level_of(ratio: float, levels: Mapping[str, float]) -> Level:
    """A level of any ratio up to that of the largest."""
    largest = max(levels.values())
    if not isinstance(ratio, int | float) or not 0 < ratio <= largest:
        text = f"{ratio:g}" if isinstance(ratio, int | float) else shown(ratio)
        raise RunError(f"the ratio is {text}, but it should be above 0 and at most {largest:g}")
    return Level(f"{ratio:g}", float(ratio))


def built_by(method: Method, networks: Networks, levels: tuple[Level, ...]) -> list[Level]:
    """The levels whose networks a method builds, the largest first; of several of one size from one network, one."""
    unseen = Task(networks, levels, classes=0, heads={}, example=(torch.empty(0), torch.empty(0)))
    found = list(dict.fromkeys(method.builds(Context(unseen, round=0, seed=0))))
    if isinstance(networks, ByWidth):
        known = {level.ratio: level for level in reversed(levels)}
        found = list(dict.fromkeys(known.get(level.ratio, level) for level in found))
    return sorted(found, key=lambda level: -level.ratio)


def check_model(
    networks: Networks, levels: Sequence[Level], example: Batch, goal: Goal, classes: int
) -> dict[Level, nn.Module]:
    """The network of every level, tried on one example."""
    nets = {level: build(networks, level) for level in levels}
    for level, net in nets.items():
        check_outputs(net, example, goal, classes, level)
    return nets


def build(networks: Networks, level: Level) -> nn.Module:
    """The network of a level; a factory that fails is named."""
    made_by = networks.make if isinstance(networks, ByWidth) else networks
    name = f"{getattr(made_by, '__name__', type(made_by).__name__)}({level.ratio:g})"
    with torch.random.fork_rng(devices=[]):
        try:
            net = networks(level)
        except PotluckError:
            raise
        except Exception as error:
            failure = foreign_failure(error)
            if not failure and not isinstance(error, TypeError | ValueError | RuntimeError | ZeroDivisionError):
                raise  # a fault of ours
            raise ModelError(f"{name} for level '{level.name}' fails: {failure or error}") from error
    if not isinstance(net, nn.Module):
        raise ModelError(f"{name} returns {type(net).__name__}, but it should return an nn.Module")
    return net
