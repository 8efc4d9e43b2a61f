"""A client's side: what it holds, and the one thing it does when a training job arrives."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from potluck.core.data import AnyHoldings, Examples, batches
from potluck.core.errors import UpdateError
from potluck.core.evaluate import LocalTest
from potluck.core.fit import fit, learning_rate
from potluck.core.method import Method
from potluck.core.random import seeded
from potluck.core.types import Batch, Context, Job, Phase, Task, Tensors, Update
from potluck.core.ways.stacked import fit_stacked, live, stack
from potluck.core.ways.way import Way, way_of

HOST = "cpu"


@dataclass(frozen=True)
class Site:
    """What a place that runs clients has before any job arrives. The data in it never leave with an update."""

    method: Method
    task: Task
    seed: int
    examples: Examples
    holdings: AnyHoldings
    ways: Mapping[str, str] = field(default_factory=dict)  # how clients of each level are trained, if not plainly
    device: str = HOST
    test: Examples | None = None  # for whoever scores the server's models
    local: LocalTest | None = None
    memo: dict[Hashable, object] = field(default_factory=dict, repr=False, compare=False)

    def context(self, round: int) -> Context:
        """The context of a round here; networks and plans made in one round serve the next."""
        return Context(self.task, round, self.seed, self.memo)

    def batches(self, job: Job, phase: int) -> Iterator[Batch]:
        """What a client trains on in one phase."""
        settings, rng = self.task.train, self.context(job.round).rng("batches", job.client.id, phase)
        held = self.holdings.of(job.client.id)
        stream = batches(self.examples, held, settings.batch_size, settings.epochs, rng)
        if self.device == HOST:
            return stream
        return ((inputs.to(self.device), targets.to(self.device)) for inputs, targets in stream)

    def placed(self, net: nn.Module) -> nn.Module:
        """A network where networks are trained."""
        return net if self.device == HOST else net.to(self.device)

    def here(self, phase: Phase) -> Phase:
        """A phase whose tensors are where networks are trained."""
        if self.device == HOST or not phase.extra:
            return phase
        return replace(phase, extra={name: tensor.to(self.device) for name, tensor in phase.extra.items()})

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "memo": {}}  # another process makes its own


Work = Callable[[Site, Job, Tensors], tuple[Tensors, Tensors]]
"""(site, job, what stayed on the client) -> (what is sent back, what stays); a module-level function."""


def train(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """All that a client does in a round, whatever the method and whatever the engine."""
    return train_in(way_of(job.client.level, site.ways), site, job, personal)


def train_in(
    way: Way, site: Site, job: Job, personal: Tensors, most_batches: int | None = None
) -> tuple[Tensors, Tensors]:
    """`train` in a given way; with a limit, only the first so many batches of every phase."""
    ctx, settings = site.context(job.round), site.task.train
    with seeded(site.seed, "train", job.round, job.client.id):
        net = site.placed(site.method.localize(job, ctx, personal))
        require_trainable(net, job.client.size)
        rate = learning_rate(settings, job.round, site.task.rounds)
        with way.arranged(net):
            for number, phase in enumerate(site.method.phases(job, ctx)):
                stream = islice(site.batches(job, number), most_batches)
                fit(net, way.phase(site.here(phase), settings, rate), map(way.batch, stream), settings, rate)
        return site.method.collect(net, job, ctx)


def train_stacked(
    site: Site, jobs: Sequence[Job], personal: Sequence[Tensors], most_batches: int | None = None
) -> Iterator[tuple[Tensors, Tensors] | UpdateError]:
    """`train` for clients of one level and size at once; the tensors of each are live until the next is asked for.

    For a client that cannot take part the reason comes instead; the others are trained without it.
    """
    ctx, settings = site.context(jobs[0].round), site.task.train
    failed: dict[int, UpdateError] = {}
    nets: dict[int, nn.Module] = {}
    tensors: dict[nn.Module, Tensors] = {}  # most methods keep one network for all clients of a level
    states, phases = [], []
    for place, (job, own) in enumerate(zip(jobs, personal, strict=True)):
        try:
            with seeded(site.seed, "train", job.round, job.client.id):
                net = site.placed(site.method.localize(job, ctx, own))
                require_trainable(net, job.client.size)
                theirs = [site.here(phase) for phase in site.method.phases(job, ctx)]
        except UpdateError as error:
            failed[place] = error
            continue
        if net not in tensors:
            tensors[net] = live(net)
        nets[place] = net
        states.append({name: tensor.clone() for name, tensor in tensors[net].items()})
        phases.append(theirs)
    stacked = stack(states)
    rate = learning_rate(settings, jobs[0].round, site.task.rounds)
    for number, of_all in enumerate(zip(*phases, strict=True)):
        streams = zip(*(site.batches(jobs[place], number) for place in nets), strict=True)
        together = (tuple(torch.stack(each) for each in zip(*batch, strict=True)) for batch in streams)
        structure = next(iter(nets.values()))
        fit_stacked(structure, stacked, of_all, islice(together, most_batches), settings, rate)  # type: ignore[arg-type]
    row = 0
    for place, job in enumerate(jobs):
        if place in failed:
            yield failed[place]
            continue
        for name, tensor in tensors[nets[place]].items():
            tensor.copy_(stacked[name][row])
        row += 1
        try:
            result = site.method.collect(nets[place], job, ctx)
        except UpdateError as error:
            yield error
        else:
            yield result


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


def perform_bundle(
    work: Work, site: Site, jobs: Sequence[Job], personal: Sequence[Tensors]
) -> Iterator[tuple[Update, Tensors]]:
    """Run work on jobs that came together; of clients trained at once, each took its share of the time."""
    if len(jobs) == 1 or work is not train:
        yield from (perform(work, site, job, own) for job, own in zip(jobs, personal, strict=True))
        return
    started = time.perf_counter()
    seconds = 0.0
    for job, own, result in zip(jobs, personal, train_stacked(site, jobs, personal), strict=True):
        seconds = seconds or (time.perf_counter() - started) / len(jobs)
        if isinstance(result, UpdateError):
            yield Update(job.client, {}, seconds, str(result)), own
        else:
            yield Update(job.client, result[0], seconds), result[1]
