"""Operations of PyTorch that are slow on a CPU, replaced by faster ones while a network trains; only rounding differs.

- Dropout draws one number after the other and compares it on the spot. Drawing all of them first takes half the time;
  the numbers, and so the units that are dropped, are the same. They are drawn in the order of the plain layout, also
  where the layout is another.
- A linear layer multiplies few examples by many weights. With the weights on the left that is up to twice as fast.
- The backward pass of max pooling copies its result twice if channels come last. Given the right memory it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.overrides import TorchFunctionMode

from potluck.core.types import Batch, Loss, Tensors


class Swift(TorchFunctionMode):
    """Inside of it, networks that call PyTorch get the faster operations."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.dropout and args and args[0].dtype == torch.float32 and args[0].device.type == "cpu":
            return dropout(*args, **kwargs)
        if func is F.linear and not kwargs and turning_pays(*args):
            return Turned.apply(*args)  # type: ignore[no-untyped-call]
        if func is F.max_pool2d and args and channels_are_last(args[0]) and not kwargs.get("return_indices"):
            return max_pool2d(*args, **kwargs)
        return func(*args, **kwargs)


@dataclass(frozen=True)
class SwiftLoss:
    """A loss computed with the faster operations; the backward pass needs nothing, and an optimiser would be slowed."""

    loss: Loss

    def __call__(self, net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
        with Swift():
            return self.loss(net, batch, extra)


def channels_are_last(images: Tensor) -> bool:
    """Whether images are laid out so, and only so."""
    return (
        images.dim() == 4
        and images.is_contiguous(memory_format=torch.channels_last)
        and not images.is_contiguous()
        and images.device.type == "cpu"
    )


def turning_pays(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Whether a linear layer is faster as (W xᵀ)ᵀ than as x Wᵀ: as measured for batches of 1 to 64 and many sizes."""
    if inputs.dim() != 2 or bias is None or inputs.device.type != "cpu" or inputs.dtype != torch.float32:
        return False
    return 16 <= len(inputs) <= 64 or (8 <= len(inputs) < 16 and weight.numel() >= 1 << 20)


class Turned(torch.autograd.Function):
    """x Wᵀ + b, computed as (W xᵀ + b)ᵀ."""

    @staticmethod
    def forward(ctx: FunctionCtx, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return torch.addmm(bias.unsqueeze(1), weight, inputs.t()).t().contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        inputs, weight = ctx.saved_tensors
        of_inputs, of_weight, of_bias = ctx.needs_input_grad
        return (
            gradient @ weight if of_inputs else None,
            gradient.t() @ inputs if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


def dropout(inputs: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """The same units of the inputs dropped as by PyTorch's dropout, to the bit."""
    if not training or inplace or not 0 < p < 1:
        return F.dropout(inputs, p, training, inplace)
    kept = torch.rand(inputs.shape, dtype=torch.float64) < 1 - p
    return inputs.contiguous() * kept.to(inputs.dtype).div_(1 - p)


def max_pool2d(
    images: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Max pooling of images whose channels come last."""
    settings = (pair(kernel_size), pair(stride or kernel_size), pair(padding), pair(dilation), ceil_mode)
    pooled: Tensor = MaxPool.apply(images, settings)  # type: ignore[no-untyped-call]
    return pooled


def pair(size: int | Sequence[int]) -> list[int]:
    """A size in both directions."""
    return [size, size] if isinstance(size, int) else list(size)


class MaxPool(torch.autograd.Function):
    """Max pooling whose gradient is written straight into memory with channels last."""

    @staticmethod
    def forward(ctx: FunctionCtx, images: Tensor, settings: tuple[Any, ...]) -> Tensor:
        pooled, places = torch.ops.aten.max_pool2d_with_indices(images, *settings)
        ctx.save_for_backward(images, places)
        ctx.settings = settings  # type: ignore[attr-defined]
        result: Tensor = pooled
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        images, places = ctx.saved_tensors
        into = torch.empty_like(images)
        last = gradient.contiguous(memory_format=torch.channels_last)
        torch.ops.aten.max_pool2d_with_indices_backward.grad_input(last, images, *ctx.settings, places, grad_input=into)
        return into, None
