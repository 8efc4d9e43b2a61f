"""A place that runs clients: the public recipe, and the private data of the clients that live here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from torch import nn

from potluck.core.data import Examples, Holder, batches
from potluck.core.errors import UpdateError
from potluck.core.memo import Memo
from potluck.core.method import Method
from potluck.core.recipe import Recipe
from potluck.core.types import Batch, Context, Job, Phase, Task, Tensors, Train

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
        return self.recipe.context(round, self.memo)

    def settings(self, phase: Phase) -> Train:
        """How a phase trains."""
        return phase.train or self.task.train

    def batches(self, job: Job, number: int, phase: Phase) -> Iterator[Batch]:
        """What a client trains on in one of its phases."""
        settings, rng = self.settings(phase), self.context(job.round).rng("batches", job.client.id, number)
        return self.moved(batches(self.source(job, phase), settings.batch_size, settings.epochs, rng))

    def source(self, job: Job, phase: Phase) -> Examples:
        """The examples that a phase trains on."""
        if phase.source == "private":
            return self.holder.examples(job.client.id)
        if self.task.proxy is None:
            raise UpdateError("a phase trains on proxy data, but the task has none")
        return self.task.proxy

    def moved(self, stream: Iterator[Batch]) -> Iterator[Batch]:
        """Batches where networks are trained."""
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
        return {**self.__dict__, "memo": Memo(frozen=None if self.memo.frozen is None else {})}  # each process its own


Work = Callable[[Site, Job, Tensors], tuple[Tensors, Tensors]]
"""(site, job, what stayed on the client) -> (what is sent back, what stays; nothing: what stayed stays)."""
