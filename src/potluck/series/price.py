"""What an experiment costs, known without its data: sizes and work of every level, and the work of the whole run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import torch
from torch import nn

from potluck.core.errors import ConfigError
from potluck.core.guard import Epochs, epochs_of
from potluck.core.method import Method
from potluck.core.server import cohort_size
from potluck.core.types import Context, Train
from potluck.data import sources
from potluck.data.mix import shares_of
from potluck.data.partitions import Drawn, Natural
from potluck.data.sources import About
from potluck.parts.cost.level import level_cost, typical_job
from potluck.study.config import Config, name_and_options, name_of
from potluck.study.costs import context_for
from potluck.study.facts import made_up
from potluck.study.levels import make_levels
from potluck.study.networks import model_factory


@dataclass(frozen=True)
class LevelPrice:
    """What a level costs; the same figures as in `LevelCost`, but for traffic, which depends on all levels."""

    parameters: int
    space: float
    macs: int
    paper_macs: int | None
    heterofl_flops: int | None
    epochs: Epochs  # how often its clients go over examples in a round


@dataclass(frozen=True)
class Price:
    """What an experiment costs."""

    levels: dict[str, LevelPrice]  # those that take part, by name
    macs: int  # of all training, to which the records of a run add up but for the luck of the draw

    def mean(self, column: str) -> float:
        """A column's plain mean over the levels, as HeteroFL's tables have it for a combination of levels."""
        values: list[float] = [getattr(level, column) for level in self.levels.values()]
        return sum(values) / len(values)


@dataclass(frozen=True)
class Work:
    """All that the costs of a level depend on beside its ratio and those of the others."""

    model: str  # the network's name and options, as JSON
    source: str
    method: Method
    batch_size: int
    epochs: int


def price(config: Config) -> Price:
    """What an experiment costs, of a data set and a network of ours."""
    about, work = known(name_of(config.data.source)), work_of(config)
    ratios = config.fleet.levels
    ends = {max(ratios.values()), min(ratios.values())}
    asked = {name: level_price(work, ratio, frozenset({ratio, *ends})) for name, ratio in ratios.items()}
    found = {name: level for name, level in asked.items() if level is not None}
    if not found:
        raise ConfigError(f"{config.name}: the method admits none of the levels {', '.join(ratios)}")
    size = examples_per_client(config, about)
    public = 0 if config.data.proxy is None else known(name_of(config.data.proxy)).training
    spent = {
        name: level.macs * (level.epochs.private * size + level.epochs.proxy * public) for name, level in found.items()
    }
    cohort = cohort_size(config.fleet.cohort, config.fleet.clients)
    return Price(found, round(config.task.rounds * cohort * mean_over_clients(spent, config)))


def known(source: str) -> About:
    """A data set's shapes and numbers."""
    about = sources.about(source)
    if not about.inputs or not about.training:
        raise ConfigError(f"what {source} is like is not known before it is read, so nothing can be said of costs")
    return about


def work_of(config: Config) -> Work:
    """What an experiment's costs depend on."""
    model = json.dumps(name_and_options(config.task.model), sort_keys=True)
    return Work(model, name_of(config.data.source), config.method, config.train.batch_size, config.train.epochs)


@cache
def level_price(work: Work, ratio: float, ratios: frozenset[float]) -> LevelPrice | None:
    """What a level of this ratio costs among levels of these, if the method admits it.

    That depends on the largest and the smallest level, on no other: so levels of many combinations are counted once.
    """
    ctx, method = context_of(work, ratios), work.method
    level = next(level for level in ctx.task.levels if level.ratio == ratio)
    if not method.admits(level, ctx):
        return None
    state = method.init(ctx)
    cost = level_cost(method, state, level, ctx)
    epochs = epochs_of(method, typical_job(method, state, level, ctx), ctx)
    return LevelPrice(cost.parameters, cost.space, cost.macs, cost.paper_macs, cost.heterofl_flops, epochs)


@lru_cache(maxsize=4)
def context_of(work: Work, ratios: frozenset[float]) -> Context:
    """Levels of these ratios, whose networks have shapes but no values."""
    about, options = sources.about(work.source), json.loads(work.model)
    example = made_up(about.inputs)
    make = model_factory(options.pop("name"), options, example, about.classes)
    levels = {f"{ratio:g}": ratio for ratio in sorted(ratios, reverse=True)}
    train = Train(batch_size=work.batch_size, epochs=work.epochs)
    return context_for(shapes_of(make), levels, example.to("meta"), work.method, train)


def shapes_of(make: Callable[[float], nn.Module]) -> Callable[[float], nn.Module]:
    """The same networks on the meta device."""

    def build(width: float) -> nn.Module:
        with torch.device("meta"):
            return make(width)

    return build


def examples_per_client(config: Config, about: About) -> float:
    """How many training examples a client has on average."""
    if isinstance(config.partition, Drawn):
        return config.partition.size
    return about.training / (about.owners if isinstance(config.partition, Natural) else config.fleet.clients)


def mean_over_clients(spent: dict[str, float], config: Config) -> float:
    """The mean over the levels that are dealt, each in its share.

    Levels that do not take part cost nothing where the cohort is drawn first; else others are drawn in their place.
    """
    levels = make_levels(config.fleet.levels)
    mix = getattr(config.assignment, "mix", None)
    shares: dict[str, float] = dict(zip(config.fleet.levels, shares_of(mix, levels).tolist(), strict=True))
    able = 1.0 if config.assignment.per_cohort else sum(shares[name] for name in spent)
    return sum(shares[name] * each for name, each in spent.items()) / able
