"""Weights composed of a basis that all widths share and coefficients that each width has to itself.

Mei, Guo, Zhou, Patel: Resource-Adaptive Federated Learning with All-In-One Neural Composition (NeurIPS 2022).

A layer with S inputs and T outputs has a basis V of R2 pieces, each the size of R1 inputs and the kernel,
and coefficients U of shape (T, S/R1 · R2). A layer is computed in one of two forms, which agree up to
rounding: its weight is composed first, or the basis is applied to every group of R1 inputs and the
coefficients mix the results. The form does not show in the names of tensors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from types import MethodType
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from potluck.core.threads import one_thread

NormOf = Literal["mean", "sum"]
Start = Literal["uniform", "normal"]

CONVOLUTIONS: tuple[type[nn.Conv1d | nn.Conv2d | nn.Conv3d], ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
MIX = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}  # by the number of a kernel's dimensions


@dataclass(frozen=True)
class Bank:
    """A layer's basis: its place and its size."""

    layer: str  # what the layer is called in state and settings
    module: str
    weight: str  # which of the module's parameters is composed
    size: int  # R1
    count: int  # R2
    kernel: tuple[int, ...]  # () for a matrix

    @property
    def weight_name(self) -> str:
        """The name of the weight in the plain network."""
        return f"{self.module}.{self.weight}" if self.module else self.weight

    @property
    def names(self) -> tuple[str, str]:
        """The names of basis and coefficients in a composed network."""
        prefix = f"{self.module}." if self.module else ""
        own = f"{prefix}parametrizations.{self.weight}"
        return f"{own}.original0", f"{own}.original1"


def compose(basis: Tensor, coefficients: Tensor) -> Tensor:
    """W[o, g·R1 + r] = Σ_j U[o, g·R2 + j] V[j, r] (FLANC, eq. 2)."""
    count, _, *kernel = basis.shape
    pieces = coefficients.reshape(-1, count) @ basis.flatten(1)
    return pieces.view(len(coefficients), -1, *kernel)


def orthogonality(basis: Tensor, norm_of: NormOf) -> Tensor:
    """‖V Vᵀ - I‖², V as R2 rows (FLANC, eq. 3); with "mean" divided by its R2² entries, as in the authors' code."""
    rows = basis.flatten(1)
    apart = (rows @ rows.T - torch.eye(len(rows), dtype=rows.dtype, device=rows.device)).square()
    return apart.mean() if norm_of == "mean" else apart.sum()


def start_basis(basis: Tensor) -> Tensor:
    """A basis of orthogonal pieces of length 1, drawn from PyTorch's generator."""
    with one_thread():
        return nn.init.orthogonal_(torch.empty_like(basis).flatten(1)).view_as(basis)


def start_coefficients(coefficients: Tensor, how: Start) -> Tensor:
    """U(±1/√n) over n coefficients per output, like PyTorch's own 1x1 convolution, or N(0, 2/T) for T outputs."""
    outputs, inputs = coefficients.shape
    if how == "uniform":
        return torch.empty_like(coefficients).uniform_(-(inputs**-0.5), inputs**-0.5)
    return torch.empty_like(coefficients).normal_(0.0, (2 / outputs) ** 0.5)


class Composition(nn.Module):
    """Takes the place of a weight: made of a basis and coefficients whenever it is read."""

    def __init__(self, bank: Bank) -> None:
        super().__init__()
        self.bank = bank

    def forward(self, basis: Tensor, coefficients: Tensor) -> Tensor:
        return compose(basis, coefficients)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Room for the basis and the coefficients of this weight; they are loaded later."""
        bank, (outputs, inputs) = self.bank, weight.shape[:2]
        basis = weight.new_zeros(bank.count, bank.size, *bank.kernel)
        return basis, weight.new_zeros(outputs, inputs // bank.size * bank.count)


def compose_layers(net: nn.Module, banks: Iterable[Bank], grouped: Collection[str] = ()) -> nn.Module:
    """The network with these layers composed in place; those named in `grouped` never make their weight."""
    for bank in banks:
        module = net.get_submodule(bank.module)
        if bank.layer in grouped:
            forward = grouped_linear if isinstance(module, nn.Linear) else grouped_convolution
            module.forward = MethodType(forward, module)
        parametrize.register_parametrization(module, bank.weight, Composition(bank))
    if "forward" not in vars(net):
        net.forward = MethodType(once_per_pass, net)
    return net


def once_per_pass(net: nn.Module, *inputs: Any, **options: Any) -> Any:
    """The network's own forward pass, in which a weight that is read several times is composed once."""
    with parametrize.cached():
        return type(net).forward(net, *inputs, **options)


def bases_in(net: nn.Module) -> Iterator[Tensor]:
    """The bases of all composed layers."""
    for module in net.modules():
        if isinstance(module, parametrize.ParametrizationList) and isinstance(module[0], Composition):
            yield module.get_parameter("original0")


def basis_and_coefficients(module: nn.Module) -> tuple[Tensor, Tensor]:
    """Basis and coefficients of a composed convolution or linear layer."""
    names = ("parametrizations.weight.original0", "parametrizations.weight.original1")
    return module.get_parameter(names[0]), module.get_parameter(names[1])


def grouped_linear(module: nn.Linear, inputs: Tensor) -> Tensor:
    """y = U [V x_1, …, V x_G] for the groups x_g of R1 inputs."""
    basis, coefficients = basis_and_coefficients(module)
    pieces = inputs.unflatten(-1, (-1, basis.shape[1])) @ basis.T
    return F.linear(pieces.flatten(-2), coefficients, module.bias)


def grouped_convolution(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, inputs: Tensor) -> Tensor:
    """y = U [V * x_1, …, V * x_G] for the groups x_g of R1 channels: one convolution for all groups, then a 1x1."""
    basis, coefficients = basis_and_coefficients(module)
    dims = basis.dim() - 2
    batch = inputs if inputs.dim() == dims + 2 else inputs[None]
    groups = batch.reshape(-1, basis.shape[1], *batch.shape[2:])
    pieces = module._conv_forward(groups, basis, None)  # with the layer's own stride, padding and dilation
    mixed = pieces.reshape(len(batch), -1, *pieces.shape[2:])
    outputs = MIX[dims](mixed, coefficients[(...,) + (None,) * dims], module.bias)
    return outputs if inputs.dim() == dims + 2 else outputs[0]


# ---- which form is cheaper ----

GROUPED_COST = 2.0  # a multiply-add on small groups costs as much as two of the layer's own (benchmarks/flanc_forms.py)


def composed_macs(bank: Bank, shape: tuple[int, ...], outputs: int, batch: int) -> int:
    """T S R2 k² to compose a weight once + B H W T S k² to use it, B H W T being `batch` times `outputs`."""
    rows, inputs, *kernel = shape
    return inputs * prod(kernel) * (rows * bank.count + batch * outputs)


def grouped_macs(bank: Bank, shape: tuple[int, ...], outputs: int, batch: int) -> int:
    """B H W (R2 S k² + S/R1 R2 T)."""
    rows, inputs, *kernel = shape
    return (
        batch * outputs // rows * bank.count * inputs * prod(kernel)
        + batch * outputs * inputs // bank.size * bank.count
    )


def grouped_is_cheaper(bank: Bank, shape: tuple[int, ...], outputs: int, batch: int) -> bool:
    """Whether a training step takes less in groups; counted, since measured time must not decide a run's bits."""
    return GROUPED_COST * grouped_macs(bank, shape, outputs, batch) < composed_macs(bank, shape, outputs, batch)


def can_be_grouped(module: nn.Module) -> bool:
    """Whether a layer computes just what PyTorch's own layer does, so that another forward may take its place."""
    if isinstance(module, CONVOLUTIONS):
        own = type(module)
        return any(own.forward is c.forward and own._conv_forward is c._conv_forward for c in CONVOLUTIONS)
    return isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
