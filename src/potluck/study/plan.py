"""What a narrow network keeps of a wide one, told layer by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from potluck.core.errors import ConfigError
from potluck.core.inputs import Inputs
from potluck.core.made_up import runnable
from potluck.core.networks import ByWidth
from potluck.core.types import Level
from potluck.parts.cut.channels import STAYS, Channels, Rounding
from potluck.parts.cut.plan import Plan
from potluck.parts.shrink.shrinkable import Shrinkable
from potluck.parts.trace.findings import UNSHARED
from potluck.parts.trace.layers import KERNEL
from potluck.parts.width.between import counts_between
from potluck.study.levels import build
from potluck.study.schema import shown

ALONE = ("", UNSHARED, KERNEL)  # nobody asks why these stay


@dataclass(frozen=True)
class Dimension:
    """One dimension of a tensor: how much of it is kept, with which others it goes, or why it stays."""

    size: int
    kept: int
    groups: tuple[str, ...]  # each named after the first tensor that has these channels
    reason: str


@dataclass(frozen=True, eq=False)
class WidthPlan:
    """A plan with its reasons, to read or to print."""

    width: float
    plan: Plan
    parameters_full: int
    parameters: int
    tensors: dict[str, tuple[Dimension, ...]]
    remarks: dict[str, str]  # by group: why it keeps another number of channels than the width alone would give

    @property
    def kept_whole(self) -> dict[str, str]:
        """The parameters of which nothing can go, and why."""
        whole = {name: dims for name, dims in self.tensors.items() if all(dim.kept == dim.size for dim in dims)}
        return {name: reason_for(dims) for name, dims in whole.items()}

    @property
    def whole_dimensions(self) -> dict[str, str]:
        """The dimensions that other parts of the network keep whole, and why."""
        return {
            f"{name}[{number}]": dim.reason
            for name, dims in self.tensors.items()
            for number, dim in enumerate(dims)
            if dim.reason not in ALONE
        }

    @property
    def groups(self) -> dict[str, list[str]]:
        """The sets of channels that go together, each with the dimensions it lies in."""
        found: dict[str, list[str]] = {}
        for name, dims in self.tensors.items():
            for number, dim in enumerate(dims):
                for group in dim.groups:
                    found.setdefault(group, []).append(f"{name}[{number}]")
        return found

    def table(self) -> dict[str, Any]:
        """Everything, for other programs."""
        return {
            "width": self.width,
            "parameters_full": self.parameters_full,
            "parameters": self.parameters,
            "kept_whole": self.kept_whole,
            "kept_sizes": {name: [dim.kept for dim in dims] for name, dims in self.tensors.items()},
            "full_sizes": {name: [dim.size for dim in dims] for name, dims in self.tensors.items()},
            "kept_indices": {name: [kept.runs for kept in self.plan[name]] for name in self.tensors},
            "whole_dimensions": self.whole_dimensions,
            "groups": self.groups,
            "remarks": self.remarks,
        }


def plan(
    model: Callable[[float], nn.Module] | nn.Module,
    example: Inputs,
    width: float,
    keep: Sequence[str] = (),
    rounding: Rounding = "ceil",
) -> WidthPlan:
    """What a network of this width keeps of the full one: which channels, which go together, what stays and why.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> found = plan(net, torch.zeros(1, 4), 0.5)
    >>> found.parameters_full, found.parameters, found.kept_whole
    (58, 30, {'2.bias': "it is the network's output"})
    """
    inputs = as_inputs(example)
    if not isinstance(width, int | float) or not 0 < width <= 1:
        raise ConfigError(f"width is {width!r}, but it should be above 0 and at most 1, such as 0.5")
    if not callable(model):
        raise ConfigError(
            f"model is {shown(model)}, but it should be a network, or a function of the width that makes one"
        )
    source = Shrinkable(model, inputs, tuple(keep), rounding) if isinstance(model, nn.Module) else model
    wide, narrow = (build(ByWidth(source), Level(f"{ratio:g}", ratio)) for ratio in (1.0, width))
    if isinstance(source, Shrinkable):
        channels = source.findings.channels
        found, remarks = source.plan(width), remarks_on(channels, width, source.rounding)
    else:
        channels, counts = counts_between(wide, narrow, runnable(wide, inputs))
        found, remarks = channels.plan(counts), {}
    parameters = dict(wide.named_parameters())
    return WidthPlan(
        width,
        found,
        sum(parameter.numel() for parameter in parameters.values()),
        sum(math.prod(found.shapes[name]) for name in parameters),
        {name: tuple(dimensions(name, channels, found)) for name in parameters},
        remarks,
    )


def as_inputs(example: Any) -> Inputs:
    """The user's made-up inputs, if they are tensors."""
    leaves = tree_leaves(example)
    if not leaves or not all(isinstance(each, Tensor) for each in leaves):
        raise ConfigError(
            f"example is {shown(example)}, but it should be a tensor with a batch of one input, such as "
            "torch.zeros(1, 3, 32, 32), a list of such tensors, or a dictionary of them by argument"
        )
    return example


def dimensions(name: str, channels: Channels, found: Plan) -> Iterator[Dimension]:
    """A tensor's dimensions, each with what is known of it."""
    firsts = channels.first_tensors()
    for number, (ids, kept) in enumerate(zip(channels.ids[name], found[name], strict=True)):
        groups = dict.fromkeys(firsts[channel] for channel in ids[ids != STAYS].tolist())
        yield Dimension(kept.size, kept.count, tuple(groups), channels.whole[name][number])


def remarks_on(channels: Channels, width: float, rounding: Rounding) -> dict[str, str]:
    """Why groups keep another number of channels than the width alone would give."""
    firsts = channels.first_tensors()
    told: dict[str, dict[str, None]] = {}  # one group may have several blocks, such as queries, keys and values
    for number, remark in channels.unusual(width, rounding).items():
        told.setdefault(firsts[channels.blocks[number].channels[0]], {})[remark] = None
    return {group: "; ".join(remarks) for group, remarks in told.items()}


def reason_for(dims: Sequence[Dimension]) -> str:
    """Why a tensor stays whole: the reason of its first dimension that has one."""
    reasons = [dim.reason for dim in dims if dim.reason]
    told = [reason for reason in reasons if reason not in ALONE]
    return next(iter([*told, *reasons]), "so small a part of it cannot be cut at this width")
