"""Whether a way computes what the plain way does: the gradient of a few examples, in both.

A gradient and not what a client sends back: the first step of Adam makes large what is zero but for rounding, and a
small rate makes rounding large beside the step. Rounding stays far below the tolerance here, so every machine finds the
same.
"""

from __future__ import annotations

import torch
from torch import nn

from potluck.core.client import Site
from potluck.core.inputs import mapped
from potluck.core.mixed import require_precise
from potluck.core.random import seeded
from potluck.core.threads import one_thread
from potluck.core.types import Batch, Job, Phase, Tensors, Train
from potluck.core.ways.stacked import Lossy, live, losses_of, require_stackable, stack
from potluck.core.ways.way import Way

FEW = 4  # examples
TOLERANCE = 1e-2
STEADY = Train(momentum=0.9)  # with these settings no way takes a part of the step in the backward pass


def agrees(way: Way, site: Site, job: Job, personal: Tensors) -> bool:
    """Whether a client's network learns in a way what it learns plainly."""
    try:
        with one_thread():
            expected, found = gradients(Way(), site, job, personal), gradients(way, site, job, personal)
    except Exception:  # whatever a network, a loss or PyTorch says to being stacked or laid out otherwise
        return False
    if set(found) != set(expected):  # a stack gives other tensors to a network, which may still read its own
        return False
    size = sum(float(each.double().square().sum()) for each in expected.values())
    apart = sum(float((found[name] - expected[name]).double().square().sum()) for name in expected)
    return apart <= TOLERANCE**2 * size


def gradients(way: Way, site: Site, job: Job, personal: Tensors) -> Tensors:
    """The gradients of a few of a client's examples, phase by phase."""
    ctx, found = site.context(job.round), Tensors()
    with seeded(ctx.seed, "train", job.round, job.client.id):
        net = site.placed(site.method.localize(job, ctx, personal)).train()
        for number, phase in enumerate(map(site.here, site.method.phases(job, ctx, personal))):
            batch = mapped(lambda tensor: tensor[:FEW], next(site.batches(job, number, phase)))
            settings = phase.train or ctx.task.train
            if way.swift:
                require_precise(settings)
            own = of_stack(net, phase, batch, settings) if way.stack > 1 else of_one(way, net, phase, batch)
            found |= {f"{number} {name}": gradient for name, gradient in own.items()}
    return found


def of_one(way: Way, net: nn.Module, phase: Phase, batch: Batch) -> Tensors:
    """The gradient of every parameter that a phase trains."""
    net.zero_grad()  # training leaves the last step's behind
    try:
        with way.arranged(net):
            way.phase(phase, STEADY).loss(net, way.batch(batch), phase.extra).backward()
        return {name: p.grad for name, p in trained_in(net, phase).items() if p.grad is not None}
    finally:
        net.zero_grad()


def of_stack(net: nn.Module, phase: Phase, batch: Batch, settings: Train) -> Tensors:
    """The same in a stack of two clients that are alike: that of the second."""
    require_stackable(net, settings)
    states = stack([live(net)] * 2)
    leaves = {name: states[name].requires_grad_() for name in trained_in(net, phase)}
    twice = mapped(lambda tensor: torch.stack([tensor] * 2), batch)
    losses = losses_of(Lossy(net, phase.loss))(states, twice, stack([phase.extra] * 2))
    found = torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)
    return {name: each[1] for name, each in zip(leaves, found, strict=True) if each is not None}


def trained_in(net: nn.Module, phase: Phase) -> dict[str, nn.Parameter]:
    """The parameters that a phase trains, by name."""
    return {name: p for name, p in net.named_parameters() if p.requires_grad and phase.trains(name)}
