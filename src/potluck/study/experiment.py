"""Everything a run needs, as objects: put together from a config, or from what a user has in hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from potluck.core.client import Site
from potluck.core.data import Examples, Holdings, evenly_spaced
from potluck.core.errors import ConfigError, ModelError
from potluck.core.fleet import Assignment, Fleet
from potluck.core.method import Method
from potluck.core.random import seeded, stream
from potluck.core.server import cohort_size
from potluck.core.types import Batch, Context, Level, Task, Train
from potluck.data.dataset import Dataset
from potluck.data.local_test import local_test
from potluck.data.partitions import Partition
from potluck.parts.cost.level import LevelCost, level_cost
from potluck.parts.head import check_outputs, find_embeddings, find_head
from potluck.parts.shrink.shrinkable import Shrinkable
from potluck.study.config import Config, name_of, options_of
from potluck.study.networks import load_source, model_factory


@dataclass(frozen=True)
class Experiment:
    """A federation ready to run."""

    site: Site
    fleet: Fleet
    cohort: int | float
    evaluate_every: int
    calibration_clients: int

    @property
    def method(self) -> Method:
        return self.site.method

    @property
    def task(self) -> Task:
        return self.site.task

    @property
    def test(self) -> Examples:
        assert self.site.test is not None
        return self.site.test

    def admitted(self) -> list[Level]:
        """The levels whose devices take part."""
        ctx = self.site.context(0)
        return [level for level in self.task.levels if self.method.admits(level, ctx)]

    def costs(self) -> list[LevelCost]:
        """What each admitted level costs."""
        ctx = self.site.context(0)
        state = self.method.init(ctx)
        return [level_cost(self.method, state, level, ctx) for level in self.admitted()]


def assemble(
    *,
    model: Callable[[float], nn.Module] | nn.Module,
    data: Dataset,
    method: Method,
    levels: Mapping[str, float],
    clients: int,
    rounds: int,
    partition: Partition,
    assignment: Assignment,
    train: Train,
    cohort: int | float,
    evaluate_every: int,
    calibration_clients: int,
    seed: int,
    device: str = "cpu",
) -> Experiment:
    """Put an experiment together, and refuse at once what could only fail later."""
    ranked = make_levels(levels)
    example = made_up(data.train)
    model = Shrinkable(model, example[:1]) if isinstance(model, nn.Module) else model
    net = check_model(model, built_by(method, model, ranked), example[0], data.classes)
    task = Task(
        model=model,
        levels=ranked,
        classes=data.classes,
        head=find_head(net, example[0], data.classes),
        example=example,
        train=train,
        rounds=rounds,
        goal=data.goal,
        embeddings={} if data.goal == "classes" else find_embeddings(net, data.classes),
    )
    targets = data.train.labels(torch.arange(len(data.train)))
    holdings = partition(targets, clients, stream(seed, "partition"), data.owners)
    fleet = Fleet(ranked, assignment, holdings, data.train, seed)
    dealt_to = cohort_size(cohort, clients) if assignment.per_cohort else clients
    fleet.deal(dealt_to, round=0)  # a mix that does not fit the levels is refused here
    local = None
    # where holdings are drawn when asked for, clients share examples: no test example could be called one client's
    if data.goal == "classes" and isinstance(holdings, Holdings):
        local = local_test(targets, holdings, data.test.labels(torch.arange(len(data.test))), data.classes)
    site = Site(method, task, seed, data.train, holdings, device=usable(device), test=data.test, local=local)
    experiment = Experiment(site, fleet, cohort, evaluate_every, calibration_clients)
    if not experiment.admitted():
        raise ConfigError(
            f"the method admits none of the levels {', '.join(f'{level.name} ({level.ratio:g})' for level in ranked)}: "
            "its network is wider than every device; lower its width or raise a level"
        )
    return experiment


def from_config(config: Config, data_dir: Path | None = None) -> Experiment:
    """The experiment that a config describes, on data from this folder or the one POTLUCK_DATA names."""
    data = load_source(config.data.source, data_dir)
    if config.data.test_examples is not None:
        data = replace(data, test=evenly_spaced(data.test, config.data.test_examples))
    with seeded(config.seed, "model"):  # a ready-made network's first weights are drawn as it is imported
        model = model_factory(
            name_of(config.task.model), options_of(config.task.model), made_up(data.train)[:1], data.classes
        )
    return assemble(
        model=model,
        data=data,
        method=config.method,
        levels=config.fleet.levels,
        clients=config.fleet.clients,
        rounds=config.task.rounds,
        partition=config.partition,
        assignment=config.assignment,
        train=config.train,
        cohort=config.fleet.cohort,
        evaluate_every=config.task.evaluate_every,
        calibration_clients=config.task.calibration_clients,
        seed=config.seed,
        device=config.engine.device,
    )


def usable(device: str) -> str:
    """The name of a device, if networks can be there."""
    if device == "cpu" or (device == "cuda" and torch.cuda.is_available()):
        return device
    why = "this machine has none" if device == "cuda" else "it should be 'cpu' or 'cuda'"
    raise ConfigError(f"[engine] device is {device!r}, but {why}")


def make_levels(levels: Mapping[str, float]) -> tuple[Level, ...]:
    """Levels from names and ratios, each ratio in (0, 1]."""
    for name, ratio in levels.items():
        if not re.fullmatch(r"[\w-][\w .-]*", name):
            raise ConfigError(
                f"a level is called '{name}', but it gives files their names: use letters, digits, - and _"
            )
        if not 0 < ratio <= 1:
            raise ConfigError(f"level '{name}' has the ratio {ratio!r}, but it should be above 0 and at most 1")
    if not levels:
        raise ConfigError("levels is empty, but a fleet needs at least one, such as {'phone': 0.5}")
    return tuple(Level(name, float(ratio)) for name, ratio in levels.items())


def made_up(examples: Examples) -> Batch:
    """A batch of one with the shape and type of the data, and nothing of its content."""
    inputs, targets = examples.take(torch.tensor([0]))
    return torch.zeros_like(inputs), torch.zeros_like(targets)


def built_by(method: Method, model: Callable[[float], nn.Module], levels: tuple[Level, ...]) -> list[Level]:
    """The sizes of network that a method builds, the largest first, as levels."""
    unseen = Task(model, levels, classes=0, head=(), example=(torch.empty(0), torch.empty(0)))
    known = {level.ratio: level for level in levels}
    ratios = sorted(method.sizes(Context(unseen, round=0, seed=0)), reverse=True)
    return [known.get(ratio, Level(f"{ratio:g}", ratio)) for ratio in ratios]


def check_model(
    model: Callable[[float], nn.Module], levels: Sequence[Level], example: Tensor, classes: int
) -> nn.Module:
    """Build the network of every level and try it on one example; returns the first."""
    for level in levels:
        check_outputs(build(model, level), example, classes, level)
    return build(model, levels[0])


def build(model: Callable[[float], nn.Module], level: Level) -> nn.Module:
    """The network of a level; a factory that fails is named."""
    name = getattr(model, "__name__", type(model).__name__)
    with torch.random.fork_rng(devices=[]):
        try:
            net = model(level.ratio)
        except (TypeError, ValueError, RuntimeError, ZeroDivisionError) as error:
            raise ModelError(f"{name}({level.ratio:g}) for level '{level.name}' fails: {error}") from error
    if not isinstance(net, nn.Module):
        raise ModelError(f"{name}({level.ratio:g}) returns {type(net).__name__}, but it should return an nn.Module")
    return net
