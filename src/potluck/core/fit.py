"""The only training loop, and the loss that it minimises unless a method says otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from potluck.core.logits import logits_of
from potluck.core.types import Batch, Phase, Tensors, Train


def learning_rate(train: Train, round: int, rounds: int) -> float:
    """The rate of a round (0-based): constant, stepped at milestones, or lr/2 (1 + cos πt/T)."""
    if train.schedule == "multistep":
        return train.lr * train.decay ** sum(round >= milestone for milestone in train.milestones)
    if train.schedule == "cosine":
        return train.lr / 2 * (1 + math.cos(math.pi * round / rounds))
    return train.lr


def in_round(train: Train, round: int, rounds: int) -> Train:
    """The settings with the rate of a round."""
    rate = learning_rate(train, round, rounds)
    return train if rate == train.lr else replace(train, lr=rate)


def descends_plainly(train: Train) -> bool:
    """Whether a step is w - η·g: nothing but the gradient, and nothing to remember."""
    return train.optimizer == "sgd" and not (train.momentum or train.weight_decay)


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
    if train.optimizer == "adam":
        return torch.optim.Adam(groups, lr=train.lr, fused=real)
    if train.momentum:
        return torch.optim.SGD(groups, lr=train.lr, momentum=train.momentum, foreach=True)
    return torch.optim.SGD(groups, lr=train.lr, fused=real)


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
    """Train a network in place on a stream of batches, one optimiser step per batch, at the settings' own rate."""
    with frozen(p for name, p in net.named_parameters() if p.requires_grad and not phase.trains(name)):
        named = [(name, p) for name, p in net.named_parameters() if p.requires_grad]
        optimizer = optimizer_of(named, phase.decays, train)
        trained = [p for _, p in named]
        net.train()
        for batch in stream:
            optimizer.zero_grad()
            phase.loss(net, batch, phase.extra).backward()
            if train.clip:
                nn.utils.clip_grad_norm_(trained, train.clip)
            optimizer.step()


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy; any dimensions between batch and classes count as more examples."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def plain_loss(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """Cross-entropy of the network's logits."""
    inputs, targets = batch
    return cross_entropy(logits_of(net(inputs)), targets)
