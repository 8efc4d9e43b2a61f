"""Clients of one level and size trained at once, each as if it were alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from torch import nn

from potluck.core.blame import reason_of
from potluck.core.client import Site, require_trainable
from potluck.core.errors import UpdateError
from potluck.core.fit import in_round
from potluck.core.networks import SHARERS, unshare
from potluck.core.random import seeded
from potluck.core.tensors import changes_frozen
from potluck.core.types import Job, Phase, Tensors
from potluck.core.ways.stacked import fit_stacked, live, stack


@dataclass(frozen=True)
class Member:
    """A client ready to be trained with others."""

    job: Job
    net: nn.Module
    tensors: Tensors  # the network's own, live; most methods keep one network for all clients of a level
    start: Tensors  # what they were before training
    phases: Sequence[Phase]


def train_stacked(
    site: Site, jobs: Sequence[Job], personal: Sequence[Tensors], most_batches: int | None = None
) -> Iterator[tuple[Tensors, Tensors] | UpdateError]:
    """`train` for clients of one level and size at once; the tensors of each are live until the next is asked for.

    For a client that cannot take part the reason comes instead; the others are trained without it.
    """
    known: dict[nn.Module, Tensors] = {}
    members = [prepared(site, job, own, known) for job, own in zip(jobs, personal, strict=True)]
    able = [member for member in members if isinstance(member, Member)]
    stacked = stack([member.start for member in able])  # (client, ...)
    for number, phases in enumerate(zip(*(member.phases for member in able), strict=True)):
        settings = in_round(phases[0].train or site.task.train, jobs[0].round, site.task.rounds)
        stream = islice(
            site.stacked_batches([(member.job, member.phases[number]) for member in able], number), most_batches
        )
        fit_stacked(able[0].net, stacked, phases, stream, settings)
    rows = iter(range(len(able)))
    for member in members:
        yield collected(site, member, stacked, next(rows)) if isinstance(member, Member) else member


def prepared(site: Site, job: Job, personal: Tensors, known: dict[nn.Module, Tensors]) -> Member | UpdateError:
    """A client's network and phases, or why it cannot take part."""
    ctx = site.context(job.round)
    try:
        with seeded(ctx.seed, "train", job.round, job.client.id):
            net = site.placed(site.method.localize(job, ctx, personal))
            require_trainable(net, job.client.size)
            phases = [site.here(phase) for phase in site.method.phases(job, ctx, personal)]
    except Exception as error:
        return reason_of(error, job)
    if net not in known or net in SHARERS:  # a load may have given it other frozen parameters
        known[net] = live(net)
    tensors = known[net]
    return Member(job, net, tensors, {name: tensor.clone() for name, tensor in tensors.items()}, phases)


def collected(site: Site, member: Member, stacked: Tensors, row: int) -> tuple[Tensors, Tensors] | UpdateError:
    """What one of the clients sends back and keeps."""
    trained, tensors = {name: values[row] for name, values in stacked.items()}, member.tensors
    if member.net in SHARERS:
        tensors = live(unshare(member.net) if changes_frozen(member.net, trained) else member.net)
    for name, tensor in tensors.items():
        tensor.copy_(trained[name])
    try:
        return site.method.collect(member.net, member.job, site.context(member.job.round))
    except Exception as error:
        return reason_of(error, member.job)
