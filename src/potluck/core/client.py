"""A client's side: the one thing it does when a training job arrives."""

from __future__ import annotations

from itertools import islice

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from potluck.core.errors import UpdateError
from potluck.core.fit import fit, in_round
from potluck.core.random import seeded
from potluck.core.site import Site
from potluck.core.types import Job, Tensors
from potluck.core.ways.way import Way, way_of


def train(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """All that a client does in a round, whatever the method and whatever the engine."""
    return train_in(way_of(job.client.level, site.recipe.ways), site, job, personal)


def train_in(
    way: Way, site: Site, job: Job, personal: Tensors, most_batches: int | None = None
) -> tuple[Tensors, Tensors]:
    """`train` in a given way; with a limit, only the first batches of every phase."""
    ctx = site.context(job.round)
    with seeded(ctx.seed, "train", job.round, job.client.id):
        net = site.placed(site.method.localize(job, ctx, personal))
        require_trainable(net, job.client.size)
        with way.arranged(net):
            for number, phase in enumerate(site.method.phases(job, ctx, personal)):
                settings = in_round(site.settings(phase), job.round, site.task.rounds)
                stream = islice(site.batches(job, number, phase), most_batches)
                fit(net, way.phase(site.here(phase), settings), map(way.batch, stream), settings)
        return site.method.collect(net, job, ctx)


def require_trainable(net: nn.Module, examples: int) -> None:
    """Refuse what PyTorch cannot train: nothing at all, or batch norm on a single example."""
    if examples == 0:
        raise UpdateError("the client holds no examples")
    if examples == 1 and any(isinstance(module, _BatchNorm) for module in net.modules()):
        raise UpdateError("the client holds one example, and batch norm needs two")
