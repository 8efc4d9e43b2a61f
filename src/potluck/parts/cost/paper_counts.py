"""Costs as the papers' tables count them, for comparison with those tables only.

HeteroFL and FedHM count differently, and neither counts plain multiply-adds. With the rules below
the full and the narrowed networks have the costs that their tables print.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AvgPoolNd
from torch.nn.utils.parametrize import is_parametrized
from torch.utils._python_dispatch import TorchDispatchMode

from potluck.core.errors import ModelError
from potluck.core.inputs import Inputs
from potluck.core.observe import Given, observe

Cost = Callable[[nn.Module, Tensor, Tensor], int]
"""(module, its input, its output) -> what this call costs."""

Counter = Callable[[nn.Module, Tensor], int]
"""(network, example) -> what the network costs."""


def heterofl_flops(net: nn.Module, example: Inputs) -> int:
    """HeteroFL's "FLOPs" of one example: Σ over calls of cost · number of parameter tensors (its tables 1-3, 7-9)."""
    return measure(net, example, lambda *call: heterofl_cost(*call) * owned_tensors(call[0]))


def fedhm_macs(net: nn.Module, example: Inputs) -> int:
    """FedHM's "MACs" of one example: layers, norms, average pooling and ReLUs (FedHM, table 8)."""
    relus = ReluElements()
    with relus:
        layers = measure(net, example, fedhm_cost)
    return layers + relus.count


def heterofl_cost(module: nn.Module, x: Tensor, y: Tensor) -> int:
    """Multiply-adds; a convolution's bias adds one per output, a linear layer's is free; a norm costs two per value."""
    if isinstance(module, _ConvNd) and module.bias is not None:
        return multiply_adds(module, y) + y.numel()
    if isinstance(module, _BatchNorm | nn.LayerNorm):
        return 2 * x.numel()
    return multiply_adds(module, y)


def owned_tensors(module: nn.Module) -> int:
    """HeteroFL adds a module's cost once per parameter tensor: twice with a bias, and twice for every norm."""
    return len(list(module.parameters(recurse=False)))


def fedhm_cost(module: nn.Module, x: Tensor, y: Tensor) -> int:
    """Multiply-adds without biases, two per value for batch norm, one per value averaged by a pooling."""
    if isinstance(module, _BatchNorm):
        return 2 * x.numel()
    if isinstance(module, _AvgPoolNd | _AdaptiveAvgPoolNd):
        return x.numel()
    return multiply_adds(module, y)


def multiply_adds(module: nn.Module, y: Tensor) -> int:
    """Outputs of a convolution or linear layer times the weights that each reads; 0 for all else."""
    if isinstance(module, _ConvNd | nn.Linear):
        return y.numel() * module.weight[0].numel()
    return 0


class ReluElements(TorchDispatchMode):
    """FedHM counts one per value of every ReLU, be it a module or a function call."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count: int = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.ops.aten.relu.default, torch.ops.aten.relu_.default):
            self.count += args[0].numel()
        return func(*args, **(kwargs or {}))


def measure(net: nn.Module, example: Inputs, cost: Cost) -> int:
    """The summed cost of all calls of all modules, when the network sees this example."""
    if any(isinstance(module, nn.RNNBase) for module in net.modules()):
        raise ModelError("the papers' tables have no rule for recurrent layers; count this network's multiply-adds")
    if any(is_parametrized(module) for module in net.modules()):
        raise ModelError("the papers' tables have no rule for weights that are computed; count multiply-adds")
    total = 0

    def add(name: str, layer: nn.Module, given: Given, output: Any) -> None:
        nonlocal total
        if isinstance(output, Tensor) and given and isinstance(given[0], Tensor):
            total += cost(layer, given[0], output)

    observe(net, example, dict(net.named_modules()), after=add)
    return total
