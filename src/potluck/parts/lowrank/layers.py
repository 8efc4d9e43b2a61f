"""A convolution or a linear layer as two smaller ones, whose product is its weight up to a rank.

A weight (out, in, kh, kw) is unrolled into a matrix with rows (out, kh) and columns (in, kw). If that is A B,
the layer is a convolution of 1 x kw with B from the inputs to `rank` channels, and then one of kh x 1 with A to
the outputs. A linear layer is the case of a kernel of one. In a grouped convolution every group has its own matrix,
and all have the same rank.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import skip_init

FIRST, SECOND = "first", "second"

Layer = nn.Conv2d | nn.Linear


@dataclass(frozen=True)
class Unrolled:
    """How a weight of this shape is unrolled into matrices, one for each group, and rolled up again."""

    outputs: int
    inputs: int  # of one group
    height: int
    width: int
    groups: int
    linear: bool

    @classmethod
    def of(cls, layer: Layer) -> Unrolled:
        """How the weight of a layer is unrolled."""
        if isinstance(layer, nn.Linear):
            return cls(layer.out_features, layer.in_features, 1, 1, 1, True)
        height, width = layer.kernel_size
        return cls(layer.out_channels, layer.in_channels // layer.groups, height, width, layer.groups, False)

    @property
    def rows(self) -> int:
        return self.outputs // self.groups * self.height

    @property
    def columns(self) -> int:
        return self.inputs * self.width

    def rank(self, ratio: float) -> int:
        """r = max(round(γ · out), 1) (FedHM, sec. 3.3); in a grouped layer, of one group."""
        return min(max(round(ratio * self.outputs / self.groups), 1), self.rows, self.columns)

    def size(self, rank: int | None = None) -> int:
        """k² m n scalars, or k r (m + n) of them in factors (FedHM, table 1)."""
        each = self.rows * self.columns if rank is None else rank * (self.rows + self.columns)
        return self.groups * each

    def matrix(self, weight: Tensor) -> Tensor:
        """The weight as (groups, rows, columns)."""
        split = weight.reshape(self.groups, -1, self.inputs, self.height, self.width)
        return split.transpose(2, 3).reshape(self.groups, self.rows, self.columns)

    def weight(self, matrix: Tensor) -> Tensor:
        """The matrices as the layer's weight again."""
        split = matrix.reshape(self.groups, -1, self.height, self.inputs, self.width).transpose(2, 3)
        shape = (self.outputs, self.inputs) if self.linear else (self.outputs, self.inputs, self.height, self.width)
        return split.reshape(shape)

    def split(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """The weights of the first and the second layer from A (groups, rows, r) and B (groups, r, columns)."""
        rank = left.shape[-1]
        if self.linear:
            first, second = right.reshape(rank, self.inputs), left.reshape(self.outputs, rank)
        else:
            first = right.reshape(self.groups * rank, self.inputs, 1, self.width)
            second = left.reshape(self.outputs, self.height, rank).transpose(1, 2).unsqueeze(-1)
        return first.contiguous(), second.contiguous()  # the order in memory shows in the last bits of products

    def join(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """A and B from the weights of the first and the second layer."""
        rank = second.shape[1]
        right = first.reshape(self.groups, rank, self.columns)
        left = second.reshape(self.outputs, rank, self.height).transpose(1, 2)
        return left.reshape(self.groups, self.rows, rank), right


def factored(layer: Layer, rank: int) -> nn.Sequential:
    """Two plain layers in the place of one; strides, padding and dilation go to the side they belong to.

    Their weights are yet to be loaded: drawing some would take random numbers that a client trains with.
    """
    like: dict[str, Any] = {"device": layer.weight.device, "dtype": layer.weight.dtype}
    bias = layer.bias is not None
    if isinstance(layer, nn.Linear):
        pair: tuple[nn.Module, nn.Module] = (
            skip_init(nn.Linear, layer.in_features, rank, bias=False, **like),
            skip_init(nn.Linear, rank, layer.out_features, bias=bias, **like),
        )
    else:
        pair = (
            skip_init(nn.Conv2d, layer.in_channels, layer.groups * rank, bias=False, **along(layer, 1), **like),
            skip_init(nn.Conv2d, layer.groups * rank, layer.out_channels, bias=bias, **along(layer, 0), **like),
        )
    if layer.bias is not None:
        pair[1].get_parameter("bias").requires_grad_(layer.bias.requires_grad)
    return nn.Sequential(OrderedDict(zip((FIRST, SECOND), pair, strict=True)))


def along(layer: nn.Conv2d, side: int) -> dict[str, Any]:
    """How a convolution goes down (0) or across (1), with a kernel of one the other way."""

    def only(sizes: tuple[int, ...], otherwise: int) -> tuple[int, int]:
        return (sizes[0], otherwise) if side == 0 else (otherwise, sizes[1])

    return {
        "kernel_size": only(layer.kernel_size, 1),
        "stride": only(layer.stride, 1),
        "padding": layer.padding if isinstance(layer.padding, str) else only(layer.padding, 0),
        "dilation": only(layer.dilation, 1),
        "groups": layer.groups,
        "padding_mode": layer.padding_mode,
    }


def replace_layers(net: nn.Module, ranks: Mapping[str, int]) -> nn.Module:
    """Put factors of these ranks in the places of layers, in the network itself."""
    for name, rank in ranks.items():
        above, _, own = name.rpartition(".")
        setattr(net.get_submodule(above), own, factored(net.get_submodule(name), rank))  # type: ignore[arg-type]
    for module in net.modules():
        if isinstance(module, nn.TransformerEncoder):
            for layer in module.layers:
                module.use_nested_tensor = bool(module.use_nested_tensor) and not slow_path(layer)
        slow_path(module)
    return net


def slow_path(module: nn.Module) -> bool:
    """Keep PyTorch's transformer layer from fused inference, which reads the weights of layers it expects whole."""
    if not isinstance(module, nn.TransformerEncoderLayer) or all(
        isinstance(layer, nn.Linear) for layer in (module.linear1, module.linear2)
    ):
        return False
    module.activation_relu_or_gelu = 0
    return True


def factor_names(layer: str) -> tuple[str, str]:
    """What the weights of a layer's factors are called."""
    return f"{layer}.{FIRST}.weight", f"{layer}.{SECOND}.weight"


def bias_name(layer: str, factorised: bool = False) -> str:
    """What the bias of a layer is called, whole or in factors."""
    return f"{layer}.{SECOND}.bias" if factorised else f"{layer}.bias"
