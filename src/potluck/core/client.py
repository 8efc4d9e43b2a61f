"""A client's side: what it holds, and the one thing it does when a training job arrives."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from potluck.core.data import Examples, Holdings, batches
from potluck.core.errors import UpdateError
from potluck.core.fit import fit, learning_rate
from potluck.core.method import Method
from potluck.core.random import seeded
from potluck.core.types import Context, Job, Task, Tensors, Update


@dataclass(frozen=True)
class Site:
    """What a place that runs clients has before any job arrives. The data in it never leave with an update."""

    method: Method
    task: Task
    seed: int
    examples: Examples
    holdings: Holdings
    memo: dict[Hashable, object] = field(default_factory=dict, repr=False, compare=False)

    def context(self, round: int) -> Context:
        """The context of a round here; networks and plans made in one round serve the next."""
        return Context(self.task, round, self.seed, self.memo)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "memo": {}}  # another process makes its own


Work = Callable[[Site, Job, Tensors], tuple[Tensors, Tensors]]
"""(site, job, what stayed on the client) -> (what is sent back, what stays); a module-level function."""


def train(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """All that a client does in a round, whatever the method and whatever the engine."""
    ctx, client, settings = site.context(job.round), job.client, site.task.train
    held = site.holdings.of(client.id)
    with seeded(site.seed, "train", job.round, client.id):
        net = site.method.localize(job, ctx, personal)
        require_trainable(net, len(held))
        rate = learning_rate(settings, job.round, site.task.rounds)
        for number, phase in enumerate(site.method.phases(job, ctx)):
            rng = ctx.rng("batches", client.id, number)
            fit(net, phase, batches(site.examples, held, settings.batch_size, settings.epochs, rng), settings, rate)
        return site.method.collect(net, job, ctx)


def require_trainable(net: nn.Module, examples: int) -> None:
    """Refuse what PyTorch cannot train: nothing at all, or batch norm on a single example."""
    if examples == 0:
        raise UpdateError("the client holds no examples")
    if examples == 1 and any(isinstance(module, _BatchNorm) for module in net.modules()):
        raise UpdateError("the client holds one example, and batch norm needs two")


def perform(work: Work, site: Site, job: Job, personal: Tensors) -> tuple[Update, Tensors]:
    """Run one piece of work, timed; a client that cannot do it says why instead of ending the run."""
    started = time.perf_counter()
    try:
        payload, personal = work(site, job, personal)
    except UpdateError as error:
        return Update(job.client, {}, time.perf_counter() - started, str(error)), personal
    return Update(job.client, payload, time.perf_counter() - started), personal
