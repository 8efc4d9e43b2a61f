"""The only training loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from potluck.core.batches import batch_sizes
from potluck.core.goals.goal import scalar
from potluck.core.mixed import lowered
from potluck.core.optimizers import make
from potluck.core.types import Batch, Phase, Train

MOMENTUM = 0.9  # of SGD, if the settings do not say


def learning_rate(train: Train, round: int, rounds: int) -> float:
    """The rate of a round (0-based): the schedule's, which rises in equal steps while warming up.

    A schedule that names rounds counts all of them. One that falls, as lr/2 (1 + cos πt/T) does, begins after warming
    up.
    """
    rate, passed, left = train.lr, max(0, round - train.warmup), max(1, rounds - train.warmup)
    if train.schedule == "multistep":
        rate *= train.decay ** sum(round >= milestone for milestone in train.milestones)
    elif train.schedule == "cosine":
        rate = rate / 2 * (1 + math.cos(math.pi * passed / left))
    elif train.schedule == "linear":
        rate *= 1 - passed / left
    elif train.schedule == "exponential":
        rate *= train.decay**passed
    elif isinstance(train.schedule, tuple):
        rate *= train.schedule[min(round, len(train.schedule) - 1)]
    elif callable(train.schedule):
        rate *= train.schedule(round)
    return rate * min(1.0, (round + 1) / (train.warmup + 1))


def in_round(train: Train, round: int, rounds: int) -> Train:
    """The settings with the rate of a round."""
    rate = learning_rate(train, round, rounds)
    return train if rate == train.lr else replace(train, lr=rate)


def descends_plainly(train: Train) -> bool:
    """Whether a step is w - η·g: nothing but the gradient, and nothing to remember."""
    still = train.momentum == 0 and train.weight_decay == 0 and train.rule.kind is torch.optim.SGD
    return still and not any(value for _, value in train.rule.options)


def steps_of(examples: int, train: Train) -> int:
    """How many steps a client with so many examples takes in a round."""
    return train.epochs * len(batch_sizes(examples, train.batch_size * train.accumulate))


class Optimizer(Protocol):
    """What a training loop asks of an optimiser."""

    def zero_grad(self) -> None: ...
    def step(self) -> None: ...


@dataclass(frozen=True)
class PlainDescent:
    """w - η·g, with the bits of PyTorch's SGD but without its bookkeeping, which costs small networks dearly."""

    parameters: list[Tensor]
    lr: float

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        gradients = [(parameter, parameter.grad) for parameter in self.parameters if parameter.grad is not None]
        if gradients:
            torch._foreach_add_([p for p, _ in gradients], [g for _, g in gradients], alpha=-self.lr)


def optimizer_of(named: Iterable[tuple[str, Tensor]], decays: Callable[[str], bool], train: Train) -> Optimizer:
    """A fresh optimiser for these parameters; what does not decay is a group of its own.

    Single operations go through all parameters: Python's time per step does not grow with their number. With momentum
    these are several, since PyTorch's one for everything fails if a parameter has its first gradient later than others.
    """
    named = list(named)
    if descends_plainly(train):
        return PlainDescent([p for _, p in named], train.lr)
    groups = [
        {"params": [p for name, p in named if decays(name)], "weight_decay": train.weight_decay},
        {"params": [p for name, p in named if not decays(name)], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    real = all(p.device.type != "meta" for _, p in named)
    if train.rule.kind is not torch.optim.SGD:
        return make(train.rule, groups, train.lr, train.momentum, real)
    momentum = MOMENTUM if train.momentum is None else train.momentum
    if momentum:
        return torch.optim.SGD(groups, lr=train.lr, momentum=momentum, foreach=True, **dict(train.rule.options))
    return torch.optim.SGD(groups, lr=train.lr, fused=real, **dict(train.rule.options))


@contextmanager
def frozen(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Take parameters out of training for a while; those their author froze are not ours to thaw."""
    resting = list(parameters)
    for parameter in resting:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in resting:
            parameter.requires_grad_(True)


def fit(net: nn.Module, phase: Phase, stream: Iterable[Batch], train: Train) -> None:
    """Train a network in place on a stream of batches, one optimiser step per batch, at the settings' own rate.

    If gradients are accumulated, each batch of the stream is several, and goes through the network in pieces.
    """
    resting = (p for name, p in net.named_parameters() if p.requires_grad and not phase.trains(name))
    with frozen(resting), nullcontext() if train.precision == "float32" else lowered(net):
        named = [(name, p) for name, p in net.named_parameters() if p.requires_grad]
        optimizer = optimizer_of(named, phase.decays, train)
        trained = [p for _, p in named]
        net.train()
        for batch in stream:
            optimizer.zero_grad()
            if train.accumulate == 1:
                scalar(phase.loss(net, batch, phase.extra)).backward()
            else:
                for piece, share in pieces(batch, train.batch_size):
                    (scalar(phase.loss(net, piece, phase.extra)) * share).backward()
            if train.clip:
                nn.utils.clip_grad_norm_(trained, train.clip)
            optimizer.step()


def pieces(batch: Batch, size: int, dim: int = 0) -> Iterator[tuple[Batch, float]]:
    """A batch in pieces of so many examples, each with its share of all examples.

    A single leftover example joins the piece before it: batch norm cannot train on one.
    """
    leaves, form = tree_flatten(batch)
    count = leaves[0].shape[dim]
    sizes = batch_sizes(count, size)
    for piece in zip(*(leaf.split(sizes, dim) for leaf in leaves), strict=True):
        yield tree_unflatten(piece, form), piece[0].shape[dim] / count
