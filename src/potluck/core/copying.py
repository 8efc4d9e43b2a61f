"""Copies of networks."""

from __future__ import annotations

import copy

from torch import Tensor, nn


def copied(net: nn.Module) -> nn.Module:
    """A copy with tensors of its own."""
    return copy.deepcopy(net, {id(tensor): tensor.detach().clone() for tensor in computed(net)})


def computed(net: nn.Module) -> list[Tensor]:
    """Tensors that are neither parameters nor buffers: constants, or weights that a hook computes (weight_norm)."""
    return [value for module in net.modules() for value in vars(module).values() if isinstance(value, Tensor)]
