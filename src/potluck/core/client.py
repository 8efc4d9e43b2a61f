"""A client's side: the place it lives in, and the one thing it does when a training job arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from potluck.core.batches import batches, stacked_batches
from potluck.core.data import Examples, Holder
from potluck.core.errors import UpdateError
from potluck.core.fit import fit, in_round
from potluck.core.inputs import mapped
from potluck.core.memo import Memo
from potluck.core.method import Method
from potluck.core.random import seeded
from potluck.core.recipe import Recipe
from potluck.core.types import Batch, Context, Job, Phase, Task, Tensors
from potluck.core.ways.way import PLAIN, Way

HOST = "cpu"


@dataclass(frozen=True)
class Site:
    """What a place that runs clients has before any job arrives. The data in it never leave with an update."""

    recipe: Recipe
    holder: Holder
    device: str = HOST
    works: Mapping[str, Work] = field(default_factory=dict)  # what a job can ask for here, beside what it always can
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.device != HOST:
            self.memo.frozen = None  # a network that moves takes its parameters along: none may be another's

    @property
    def method(self) -> Method:
        return self.recipe.method

    @property
    def task(self) -> Task:
        return self.recipe.task

    def context(self, round: int) -> Context:
        """The context of a round here; networks and plans made in one round serve the next."""
        return Context(self.recipe.task, round, self.recipe.seed, self.memo)

    def batches(self, job: Job, number: int, phase: Phase) -> Iterator[Batch]:
        """What a client trains on in one of its phases."""
        settings = phase.train or self.recipe.task.train
        source, rng = self.drawn(job, number, phase)
        stream = batches(source, settings.batch_size * settings.accumulate, settings.epochs, rng)
        return stream if self.device == HOST else self.moved(stream)

    def stacked_batches(self, asked: Sequence[tuple[Job, Phase]], number: int) -> Iterator[Batch]:
        """What several clients train on in one of their phases, a client per row."""
        settings = asked[0][1].train or self.recipe.task.train
        drawn = [self.drawn(job, number, phase) for job, phase in asked]
        stream = stacked_batches(drawn, settings.batch_size * settings.accumulate, settings.epochs)
        return stream if self.device == HOST else self.moved(stream)

    def drawn(self, job: Job, number: int, phase: Phase) -> tuple[Examples, torch.Generator]:
        """The examples that a phase trains on, and the random numbers that decide their batches."""
        source = self.holder.examples(job.client.id) if phase.source == "private" else self.task.proxy
        if source is None:
            raise UpdateError("a phase trains on proxy data, but the task has none")
        return source, self.context(job.round).rng("batches", job.client.id, number)

    def moved(self, stream: Iterator[Batch]) -> Iterator[Batch]:
        """Batches where networks are trained."""

        def move(tensor: Tensor) -> Tensor:
            return tensor.to(self.device)

        return ((mapped(move, inputs), mapped(move, targets)) for inputs, targets in stream)

    def placed(self, net: nn.Module) -> nn.Module:
        """A network where networks are trained."""
        return net if self.device == HOST else net.to(self.device)

    def here(self, phase: Phase) -> Phase:
        """A phase whose tensors are where networks are trained."""
        if self.device == HOST or not phase.extra:
            return phase
        return replace(phase, extra={name: tensor.to(self.device) for name, tensor in phase.extra.items()})

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "memo": Memo(frozen=None if self.memo.frozen is None else {})}  # each process its own


Work = Callable[[Site, Job, Tensors], tuple[Tensors, Tensors]]
"""(site, job, what stayed on the client) -> (what is sent back, what stays; nothing: what stayed stays)."""


def train(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """All that a client does in a round, whatever the method and whatever the engine."""
    return train_in(Way.called(site.recipe.ways.get(job.client.level.name, PLAIN)), site, job, personal)


def train_in(
    way: Way, site: Site, job: Job, personal: Tensors, most_batches: int | None = None
) -> tuple[Tensors, Tensors]:
    """`train` in a given way; with a limit, only the first batches of every phase."""
    ctx, method = site.context(job.round), site.recipe.method
    with seeded(ctx.seed, "train", job.round, job.client.id):
        net = site.placed(method.localize(job, ctx, personal))
        require_trainable(net, job.client.size)
        with way.arranged(net):
            for number, phase in enumerate(method.phases(job, ctx, personal)):
                settings = in_round(phase.train or ctx.task.train, job.round, ctx.task.rounds)
                stream = islice(site.batches(job, number, phase), most_batches)
                fit(net, way.phase(site.here(phase), settings), map(way.batch, stream), settings)
        return method.collect(net, job, ctx)


def require_trainable(net: nn.Module, examples: int) -> None:
    """Refuse what PyTorch cannot train: nothing at all, or batch norm on a single example."""
    if examples == 0:
        raise UpdateError("the client holds no examples")
    if examples == 1 and any(isinstance(module, _BatchNorm) for module in net.modules()):
        raise UpdateError("the client holds one example, and batch norm needs two")
