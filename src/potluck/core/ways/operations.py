"""The faster operations themselves: what PyTorch computes, in another order or with fewer passes over memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable


@dataclass(frozen=True)
class Descent:
    """Plain gradient descent of one parameter, taken in the backward pass.

    It must not touch a parameter that other operations use as well: they may still need its old value. By the time of
    the backward pass it is known how many do.
    """

    rate: float
    uses: Mapping[int, int]
    parameter: int  # its id

    @property
    def is_safe(self) -> bool:
        """Whether nothing else depends on the parameter."""
        return self.uses[self.parameter] == 1


class Turned(torch.autograd.Function):
    """x Wᵀ + b, computed as (W xᵀ + b)ᵀ."""

    @staticmethod
    def forward(ctx: FunctionCtx, inputs: Tensor, weight: Tensor, bias: Tensor, descent: Descent | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.descent = descent  # type: ignore[attr-defined]
        return torch.addmm(bias.unsqueeze(1), weight, inputs.t()).t().contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        inputs, weight = ctx.saved_tensors
        for_inputs, for_weight, for_bias = ctx.needs_input_grad[:3]
        of_inputs = gradient @ weight if for_inputs else None
        of_weight = None
        if for_weight and ctx.descent is not None and ctx.descent.is_safe:
            weight.addmm_(gradient.t(), inputs, alpha=-ctx.descent.rate)
        elif for_weight:
            of_weight = gradient.t() @ inputs
        return of_inputs, of_weight, gradient.sum(0) if for_bias else None, None


def dropout(inputs: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """The same units of the inputs dropped as by PyTorch's dropout, to the bit."""
    if not training or inplace or not 0 < p < 1:
        return F.dropout(inputs, p, training, inplace)
    kept = torch.rand(inputs.shape, dtype=torch.float64).lt_(1 - p)  # in place: much faster than by way of bool
    return inputs.contiguous() * kept.to(inputs.dtype).div_(1 - p)


def max_pool2d(
    rectified: Tensor | None,
    images: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Max pooling of images whose channels come last; the gradient goes to what was rectified to get them, if known."""
    settings = (pair(kernel_size), pair(stride or kernel_size), pair(padding), pair(dilation), ceil_mode)
    pooled: Tensor = (
        MaxPool.apply(images, images.detach(), settings, False)  # type: ignore[no-untyped-call]
        if rectified is None
        else MaxPool.apply(rectified, images.detach(), settings, True)  # type: ignore[no-untyped-call]
    )
    return pooled


def pair(size: int | Sequence[int]) -> list[int]:
    """A size in both directions."""
    return [size, size] if isinstance(size, int) else list(size) * (2 // len(size))


POOLS: dict[Any, Any] = {F.conv1d: F.avg_pool1d, F.conv2d: F.avg_pool2d, F.conv3d: F.avg_pool3d}
"""PyTorch's convolutions, each with the pooling of as many dimensions."""


def convolution(
    plain: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution; where PyTorch's own is unsafe, what it would skip is left out first, then the stride is 1."""
    if not is_unsafe(weight.shape, stride) or padding == "same":  # which PyTorch refuses with a stride
        return plain(input, weight, bias, stride, padding, dilation, groups)
    sizes = [0] if isinstance(padding, str) else [padding] if isinstance(padding, int) else list(padding)
    around = [size for each in reversed(sizes * ((weight.dim() - 2) // len(sizes))) for size in (each, each)]
    padded = F.pad(input, around) if any(around) else input
    pixels = POOLS[plain](padded, 1, stride)  # the mean of one; unlike a slice it keeps the layout both ways
    return plain(pixels, weight, bias, groups=groups)


def is_unsafe(kernel: Sequence[int], stride: int | Sequence[int]) -> bool:
    """Whether PyTorch may write out of bounds in a convolution whose channels come last.

    PyTorch 2.13 does so on AVX2 in the backward pass of a kernel of size 1 with a stride and fewer than 8 input
    channels (benchmarks/channels_last_search.py). The rule has a margin: it asks for no number of channels and no
    processor.
    """
    return max(kernel[2:]) == 1 and (stride if isinstance(stride, int) else max(stride)) > 1


class MaxPool(torch.autograd.Function):
    """Max pooling whose gradient is written straight into memory with channels last.

    If the images are the source rectified, and not the source itself, the gradient is the source's all the same. What
    passes a ReLU is what was above 0; the largest of a window, which alone gets a gradient, was if the pooled value is.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, source: Tensor, images: Tensor, settings: tuple[Any, ...], rectified: bool) -> Tensor:
        pooled, places = torch.ops.aten.max_pool2d_with_indices(images, *settings)
        ctx.save_for_backward(images, places, *([pooled] if rectified else []))
        ctx.settings = settings  # type: ignore[attr-defined]
        result: Tensor = pooled
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        images, places, *pooled = ctx.saved_tensors
        last = gradient.contiguous(memory_format=torch.channels_last)
        if pooled:
            last = torch.ops.aten.threshold_backward(last, pooled[0], 0)
        into = torch.empty_like(images)
        torch.ops.aten.max_pool2d_with_indices_backward.grad_input(last, images, *ctx.settings, places, grad_input=into)
        return into, None, None, None
