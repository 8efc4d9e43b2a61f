"""Trying ways to train on a client's own data: how long each takes, if it computes what the plain way does.

Trying is short. A level has a few seconds, and a small share of what its training takes in the whole run. A way that
falls behind is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

from potluck.core.client import Site, train_in
from potluck.core.errors import UpdateError
from potluck.core.types import Job, Tensors
from potluck.core.ways.agree import agrees
from potluck.core.ways.counted import Load, stack_for
from potluck.core.ways.together import train_stacked
from potluck.core.ways.way import CHANNELS_LAST, PLAIN, SWIFT, Way

SECONDS = 5.0  # that trying a level's ways may take at most,
SHARE = 0.02  # also as a share of what the level's training takes in the whole run
TURN, BATCHES = 0.2, 5  # a turn is as many batches as take this many seconds, but at least one and at most five
TURNS = 5
BEHIND = (2.0, 1.2)  # times the fastest: a way that takes longer is dropped, after the first turn and after later ones
SMALL_STACK = 8  # clients; a large stack is no faster for some networks
AGREEING = 2  # batches that it takes, at most, to see whether a way agrees

Run = Callable[[int], None]
"""A client's training in some way, for a number of batches."""


@dataclass(frozen=True)
class Plan:
    """What clients of a level will do in the run."""

    load: Load
    batches: float  # that one worker trains from the first round to the last
    first: str = PLAIN  # the way to try first, since there may be no time for more; it is known to agree


@dataclass
class Race:
    """Ways that take turns until their time is up."""

    runs: Mapping[str, Run]
    began: float
    seconds: float

    def has_time_for(self, seconds: float) -> bool:
        """Whether something that takes so long would end in time."""
        return time.perf_counter() - self.began + seconds <= self.seconds

    def timed(self, name: str, batches: int) -> float:
        """The seconds of some batches in a way."""
        started = time.perf_counter()
        self.runs[name](batches)
        return time.perf_counter() - started

    def won(self, first: Mapping[str, float], batches: int) -> dict[str, list[float]]:
        """The seconds of every turn, by way; each way has had a first batch, which may have been slow."""
        took = {name: [seconds] if batches == 1 else [] for name, seconds in first.items()}
        racing = list(first)
        for turn in range(TURNS):
            for name in racing:
                if not self.has_time_for(min(took[name], default=batches * first[name])):
                    return took
                took[name].append(self.timed(name, batches))
            each = {name: min(took[name]) / Way.called(name).stack for name in racing}
            racing = [name for name in racing if each[name] <= BEHIND[turn > 0] * min(each.values())]
            if len(racing) == 1:
                return took
        return took


def try_ways(plans: Mapping[str, Plan], site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """The seconds that a few batches of a client take, by way; the plain way alone if there is no time for more."""
    began, plan = time.perf_counter(), plans[job.client.level.name]
    names = candidates(site.method.localize(job, site.context(job.round), personal), plan)
    race = Race({name: trial(Way.called(name), site, job, personal) for name in names}, began, SECONDS)
    batch = race.timed(PLAIN, 1)
    if batch < TURN:  # a good part of it may have been PyTorch making ready
        batch = race.timed(PLAIN, 1)
    race.seconds = min(SECONDS, SHARE * plan.batches * batch)
    first = {PLAIN: batch}
    for name in names[1:]:
        way, known = Way.called(name), name == plan.first
        if race.has_time_for(batch * (way.stack + (0 if known else AGREEING))) and (
            known or agrees(way, site, job, personal)
        ):
            first[name] = race.timed(name, 1)
    took = race.won(first, batches=max(1, min(BATCHES, int(TURN / max(batch, 1e-6)))))
    each = {name: median(times) / Way.called(name).stack for name, times in took.items() if times}
    return {name: torch.tensor(seconds, dtype=torch.float64) for name, seconds in each.items()}, {}


def candidates(net: nn.Module, plan: Plan) -> list[str]:
    """The ways worth trying for a network: the plain one, the one that should be the fastest, and others."""
    images = any(isinstance(module, nn.Conv2d) for module in net.modules())
    most = stack_for(net, plan.load)
    stacks = [f"stacked-{count}" for count in sorted({min(SMALL_STACK, most), most}) if count > 1]
    return list(dict.fromkeys([PLAIN, plan.first, *([CHANNELS_LAST] if images else []), SWIFT, *stacks]))


def trial(way: Way, site: Site, job: Job, personal: Tensors) -> Run:
    """A short training in a given way."""

    def run(batches: int) -> None:
        if way.stack == 1:
            train_in(way, site, job, personal, batches)
            return
        for result in train_stacked(site, [job] * way.stack, [personal] * way.stack, batches):
            if isinstance(result, UpdateError):
                raise result

    return run
