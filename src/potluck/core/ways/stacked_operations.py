"""Operations of PyTorch that are slow for several clients at once, replaced by faster ones; only rounding differs.

- The gradient of stacked weights comes out transposed from x Wᵀ, and is copied to be as they are. From (W xᵀ)ᵀ it comes
  out as they are, and from the faster product.
- Cross-entropy has no form for several clients: PyTorch works it out in many small steps. Few of them are needed for
  what it is nearly always asked for, the mean over examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

LEFT_OUT = -100  # the target of examples that PyTorch's cross-entropy leaves out
MEAN = {
    "weight": None,
    "size_average": None,
    "ignore_index": LEFT_OUT,
    "reduce": None,
    "reduction": "mean",
    "label_smoothing": 0.0,
}


class StackedOperations(TorchFunctionMode):
    """Inside of it, a network that is called for several clients at once gets the faster operations."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.linear and not kwargs:
            return linear(*args)
        if func is F.cross_entropy and kwargs == MEAN:
            return cross_entropy(*args)
        return func(*args, **kwargs) if kwargs else func(*args)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b, as (W xᵀ)ᵀ + b."""
    if inputs.dim() < 2:
        return F.linear(inputs, weight, bias)
    product: Tensor = (weight @ inputs.flatten(0, -2).mT).mT.unflatten(0, inputs.shape[:-1])
    return product if bias is None else product + bias


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean of -log softmax(z)_y over examples, but for those that are left out."""
    if logits.dim() != 2 or targets.dim() != 1:
        return F.cross_entropy(logits, targets)
    counts = targets != LEFT_OUT
    chosen = torch.where(counts, targets, 0).unsqueeze(1)
    found = F.log_softmax(logits, 1).gather(1, chosen).squeeze(1)
    return -torch.where(counts, found, 0.0).sum() / counts.sum()
