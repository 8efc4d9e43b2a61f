"""A level's network as clients train it and as it is deployed, for methods that train parts of a global network.

Both come from the user's plain network. In training the outputs of narrowed layers may be scaled and
batch norm may keep no statistics; in a deployed network the scaling is in the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from torch import nn

from potluck.core.tensors import load
from potluck.core.types import Context, Level, Tensors
from potluck.parts.batchnorm import forget_statistics, statistic_names
from potluck.parts.width.between import plan_between
from potluck.parts.width.scaler import fold_scaling, scale_outputs

Rescale = Callable[[nn.Module, float, Collection[str], Collection[str]], nn.Module]


def trainable(level: Level, ctx: Context, static_norm: bool, scaler: bool) -> nn.Module:
    """A level's network as clients train it."""
    net = ctx.build(level)
    if static_norm:
        forget_statistics(net)
    return rescaled(net, level, ctx, scale_outputs) if scaler else net


def deployable(tensors: Tensors, level: Level, ctx: Context, static_norm: bool, scaler: bool) -> nn.Module:
    """A level's network as it is deployed: plain, and computing what it computed in training."""
    net = ctx.build(level)
    load(net, tensors, optional=statistic_names(net) if static_norm else [])  # clients are yet to measure them
    return (rescaled(net, level, ctx, fold_scaling) if scaler else net).eval()


def rescaled(net: nn.Module, level: Level, ctx: Context, how: Rescale) -> nn.Module:
    """The network with its narrowed layers scaled by their ratio to the global width."""
    largest = ctx.task.largest
    return how(net, level.ratio / largest.ratio, plan_between(ctx, largest, level).narrowed, ctx.task.head(level))
