"""Operations of PyTorch that are slow on a CPU, replaced by faster ones while a network trains; only rounding differs.

- Dropout draws one number after the other and compares it on the spot. Drawing all of them first takes half the time;
  the numbers, and so the units that are dropped, are the same. They are drawn in the order of the plain layout, also
  where the layout is another.
- A linear layer multiplies few examples by many weights. With the weights on the left that is up to twice as fast. And
  where a step is w - η·g and no more, the gradient of that many weights need not be written down and read again: the
  backward pass adds it to the weights.
- The backward pass of max pooling copies its result twice if channels come last. Given the right memory it does not.
  After a ReLU it may as well do the ReLU's, on the few values that were the largest.
- A convolution of kernel size 1 with a stride may write out of bounds if channels come last. So the pixels that it
  would skip are left out first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from potluck.core.types import Batch, Loss, Tensors
from potluck.core.ways.operations import POOLS, Descent, Turned, convolution, dropout, max_pool2d

RELUS = frozenset((F.relu, torch.relu, Tensor.relu))
Args = Sequence[Any]
Kwargs = dict[str, Any]


class Swift(TorchFunctionMode):
    """Inside of it, networks that call PyTorch get the faster operations.

    With a rate, the step that a backward pass leads to is w - rate·g, and the pass may take part of it itself.

    Every operation comes through here, so what is not replaced must not be held up.
    """

    def __init__(self, rate: float | None = None) -> None:
        super().__init__()
        self.rate = rate
        self.uses: dict[int, int] = {}  # how often each parameter was handed to an operation, by its id
        self.rectified: tuple[Tensor, Tensor] | None = None  # the last operation's result and input, if a ReLU

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        if self.rate is not None:
            self.count(args)
            self.count(kwargs.values() if kwargs else ())
        rectified, self.rectified = self.rectified, None
        if func in RELUS:
            return self.relu(func, args, kwargs or {})
        if func is F.linear:
            return self.linear(args, kwargs or {})
        if func in POOLS:
            return convolution(func, *args, **(kwargs or {}))
        if func is F.max_pool2d:
            return self.max_pool2d(rectified, args, kwargs or {})
        if func is F.dropout:
            return self.dropout(args, kwargs or {})
        return func(*args, **kwargs) if kwargs else func(*args)

    def count(self, args: Iterable[Any]) -> None:
        """Note the parameters among the arguments of an operation, also in lists of tensors."""
        for arg in args:
            kind = type(arg)
            if kind is nn.Parameter:
                self.uses[id(arg)] = self.uses.get(id(arg), 0) + 1
            elif kind is list or kind is tuple:
                self.count(each for each in arg if type(each) is nn.Parameter)

    def relu(self, func: Callable[..., Tensor], args: Args, kwargs: Kwargs) -> Tensor:
        """The ReLU itself, which max pooling may want to know of."""
        result = func(*args, **kwargs)
        if args and not kwargs.get("inplace") and channels_are_last(args[0]):
            self.rectified = result, args[0]
        return result

    def linear(self, args: Args, kwargs: Kwargs) -> Tensor:
        """x Wᵀ + b, with the weights on the left where that pays."""
        if kwargs or not turning_pays(*args):
            return F.linear(*args, **kwargs)
        result: Tensor = Turned.apply(*args, self.descent(args[1]))  # type: ignore[no-untyped-call]
        return result

    def max_pool2d(self, rectified: tuple[Tensor, Tensor] | None, args: Args, kwargs: Kwargs) -> Tensor:
        """Max pooling, and the backward pass of the ReLU before it."""
        if not args or kwargs.get("return_indices") or not channels_are_last(args[0]):
            return F.max_pool2d(*args, **kwargs)
        of = rectified[1] if rectified and rectified[0] is args[0] else None
        return max_pool2d(of, *args, **kwargs)

    def dropout(self, args: Args, kwargs: Kwargs) -> Tensor:
        """Dropout whose numbers are drawn at once."""
        if not args or args[0].dtype != torch.float32 or args[0].device.type != "cpu":
            return F.dropout(*args, **kwargs)
        return dropout(*args, **kwargs)

    def descent(self, weight: Tensor) -> Descent | None:
        """The step that a weight may take in its backward pass; none where its gradient is somebody else's, too."""
        if self.rate is None or type(weight) is not nn.Parameter:
            return None
        if weight._backward_hooks or weight._post_accumulate_grad_hooks:  # somebody waits for its gradient
            return None
        return Descent(self.rate, self.uses, id(weight))


@dataclass(frozen=True)
class SwiftLoss:
    """A loss computed with the faster operations; the backward pass needs nothing, and an optimiser would be slowed."""

    loss: Loss
    rate: float | None = None

    def __call__(self, net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
        with Swift(self.rate):
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
