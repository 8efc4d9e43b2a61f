"""What the tests of the zoo measure: outputs, gradients, and which part of a network a plan leaves."""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from potluck.core.random import seeded, stream
from potluck.parts.cut.channels import STAYS, Channels
from potluck.parts.cut.plan import Plan

NOTHING = 1e-12
"""As good as zero, but weight norm can still divide by the length of a vector of it."""


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in what a network returned, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    if isinstance(value, Sequence):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def run(net: nn.Module, inputs: tuple[Tensor, ...], training: bool) -> list[Tensor]:
    """What a network returns, dropout drawn the same way every time."""
    with seeded(0, "dropout"):
        return tensors_in(net.train(training)(*inputs))


@torch.no_grad()
def outputs(net: nn.Module, inputs: tuple[Tensor, ...], training: bool = False) -> list[Tensor]:
    """What a copy of a network returns: a run may change what norms remember."""
    return run(copy.deepcopy(net), inputs, training)


def gradients(net: nn.Module, inputs: tuple[Tensor, ...], training: bool) -> dict[str, Tensor]:
    """The gradients that reach the parameters of a copy of a network."""
    net = copy.deepcopy(net)
    loss = sum((tensor.square().mean() + tensor.mean() for tensor in run(net, inputs, training)), torch.zeros(()))
    parameters = dict(net.named_parameters())
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return {name: gradient for name, gradient in zip(parameters, found, strict=True) if gradient is not None}


def shapes(tensors: list[Tensor]) -> list[tuple[int, ...]]:
    """The shapes of a network's outputs."""
    return [tuple(tensor.shape) for tensor in tensors]


@torch.no_grad()
def tell_channels_apart(net: nn.Module, inputs: tuple[Tensor, ...]) -> nn.Module:
    """Give every channel values of its own, and keep signals strong: either lack would hide a mix-up of channels."""
    rng = stream(0, "apart")
    for parameter in net.parameters():
        noise = torch.randn(parameter.shape, generator=rng)
        if parameter.dim() < 2:
            parameter.add_(noise, alpha=0.2)
        else:
            parameter.copy_(noise * (2 * len(parameter) / parameter.numel()) ** 0.5)  # as He et al. start ReLU networks
    norms = [module for module in net.modules() if isinstance(module, _BatchNorm)]
    usual = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.9
    run(net, inputs, training=True)
    for norm, momentum in zip(norms, usual, strict=True):
        norm.momentum = momentum
    return net


def kept_indices(plan: Plan, name: str) -> list[list[int]]:
    """The indices of one tensor that a plan keeps, per dimension."""
    return [[index for start, end in kept.runs for index in range(start, end)] for kept in plan[name]]


@torch.no_grad()
def with_nothing_outside(wide: nn.Module, plan: Plan) -> nn.Module:
    """A copy in which only the parameters' entries inside the plan are left."""
    net = copy.deepcopy(wide)
    for name, parameter in net.named_parameters():
        inside = torch.zeros(parameter.shape, dtype=torch.bool)
        grid = torch.meshgrid(*map(torch.tensor, kept_indices(plan, name)), indexing="ij")
        inside[grid] = True
        parameter[~inside] = NOTHING
    return net


def places_after_moving(ids: Tensor, moved_to: dict[int, int]) -> Tensor:
    """Where each index of a dimension finds its new content, if every channel takes over another one's."""
    seen: Counter[int] = Counter()
    place: dict[tuple[int, int], int] = {}
    keys = []
    for index, channel in enumerate(ids.tolist()):
        place[channel, seen[channel]] = index
        keys.append((channel, seen[channel]))
        seen[channel] += 1
    return torch.tensor(
        [index if channel == STAYS else place[moved_to[channel], time] for index, (channel, time) in enumerate(keys)]
    )


@torch.no_grad()
def with_channels_moved(wide: nn.Module, channels: Channels) -> nn.Module:
    """A copy in which the channels of every block have changed places, everywhere at once."""
    net = copy.deepcopy(wide)
    moved_to: dict[int, int] = {}
    for number, block in enumerate(channels.blocks):
        order = torch.randperm(block.size, generator=stream(0, "moved", number)).tolist()
        moved_to |= {block.channels[here]: block.channels[there] for here, there in enumerate(order)}
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    for name, tensor in tensors.items():
        for dim, ids in enumerate(channels.ids.get(name, ())):
            tensor.copy_(tensor.index_select(dim, places_after_moving(ids, moved_to)))
    return net


def furthest(got: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest difference, in units of the largest wanted value; the worst of several outputs."""
    pairs = zip(got, wanted, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def tied(net: nn.Module) -> set[frozenset[str]]:
    """The parameters that are one and the same under several names."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in net.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    return {frozenset(group) for group in names.values() if len(group) > 1}


def module_types(net: nn.Module) -> dict[str, type[nn.Module]]:
    """What kind of module stands at each name."""
    return {name: type(module) for name, module in net.named_modules()}


def parameter_count(net: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(parameter.numel() for parameter in net.parameters())


def state_shapes(net: nn.Module) -> dict[str, tuple[int, ...]]:
    """The shape of everything in the state dict."""
    return {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
