"""Trying ways to train on a client's own data: how long each takes, and whether it gives what the plain way gives."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import nn

from potluck.core.client import Site, train_in
from potluck.core.errors import UpdateError
from potluck.core.tensors import copied
from potluck.core.types import Job, Tensors
from potluck.core.ways.together import train_stacked
from potluck.core.ways.way import CHANNELS_LAST, PLAIN, SWIFT, Way

STACKS = (8, 32)
STACKED_SCALARS = 1 << 22  # of all clients together; beyond, a step is computing and not calling
BATCHES = 5  # a trial is no longer than this
SECONDS, TURNS = 0.2, 9  # a way has had enough after so much time and two turns, or so many turns
TOLERANCE = 1e-3  # by how much the result may differ, relative to how far training moved the weights


def candidates(net: nn.Module) -> list[str]:
    """The ways worth trying for a network, the plain one first."""
    size = sum(parameter.numel() for parameter in net.parameters())
    images = any(isinstance(module, nn.Conv2d) for module in net.modules())
    stacks = [f"stacked-{count}" for count in STACKS if count * size <= STACKED_SCALARS]
    return [PLAIN, SWIFT, *([CHANNELS_LAST] if images else []), *stacks]


def try_ways(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """The seconds that a client's training takes in every way that gives the plain way's result, by the way's name."""
    names = candidates(site.method.localize(job, site.context(job.round), personal))
    runs = {name: trial(Way.called(name), site, job, personal) for name in names}
    expected = runs[PLAIN]()
    right = {name: run for name, run in runs.items() if name == PLAIN or agrees(run, job.payload, expected)}
    took: dict[str, list[float]] = {name: [] for name in right}
    while wanting := [name for name, times in took.items() if not enough(times)]:
        for name in wanting:  # in turn, so that what disturbs one disturbs all
            started = time.perf_counter()
            right[name]()
            took[name].append(time.perf_counter() - started)
    each = {name: median(times) / Way.called(name).stack for name, times in took.items()}
    return {name: torch.tensor(seconds, dtype=torch.float64) for name, seconds in each.items()}, {}


def enough(times: list[float]) -> bool:
    """Whether a way has been timed often enough."""
    return len(times) >= TURNS or (len(times) >= 2 and sum(times) >= SECONDS)


def trial(way: Way, site: Site, job: Job, personal: Tensors) -> Callable[[], Tensors]:
    """A short training in a given way; what the client would send back."""

    def run() -> Tensors:
        if way.stack == 1:
            return copied(train_in(way, site, job, personal, BATCHES)[0])
        sent: Tensors = {}
        for result in train_stacked(site, [job] * way.stack, [personal] * way.stack, BATCHES):
            if isinstance(result, UpdateError):
                raise result
            sent = copied(result[0])
        return sent

    return run


def agrees(run: Callable[[], Tensors], sent: Tensors, expected: Tensors) -> bool:
    """Whether a way works at all, and ends where the plain way does."""
    try:
        found = run()
    except Exception:  # whatever a network, a loss or PyTorch says to being stacked or laid out otherwise
        return False
    floating = [name for name, tensor in expected.items() if tensor.is_floating_point()]
    moved = sum(float((expected[name] - sent[name]).double().square().sum()) for name in floating if name in sent)
    apart = sum(float((expected[name] - found[name]).double().square().sum()) for name in floating)
    return apart <= TOLERANCE**2 * moved
