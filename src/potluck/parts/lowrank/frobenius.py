"""Frobenius decay: weight decay for a weight that is a product of factors, on the product instead of the factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from potluck.parts.lowrank.layers import Unrolled, factor_names


class HalfSquaredNorm(torch.autograd.Function):
    """½ ‖A B‖²_F = ½ tr((AᵀA)(B Bᵀ)) (FedHM, sec. 3.3) from matrices as small as the rank; A B is never formed."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        inner, outer = left.mT @ left, right @ right.mT
        ctx.save_for_backward(left, right, inner, outer)
        return (inner * outer).sum() / 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        """A (B Bᵀ) and (AᵀA) B."""
        left, right, inner, outer = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants derivatives of these derivatives
            inner, outer = left.mT @ left, right @ right.mT
        return grad * (left @ outer), grad * (inner @ right)


def half_squared_norm(left: Tensor, right: Tensor) -> Tensor:
    """½ ‖A B‖²_F of factors, or of stacks of them."""
    found: Tensor = HalfSquaredNorm.apply(left, right)  # type: ignore[no-untyped-call]
    return found


def frobenius_penalty(net: nn.Module, layers: Mapping[str, Unrolled]) -> Tensor:
    """Σ_l ½ ‖A_l B_l‖²_F over the layers of a network that are in factors."""
    terms = []
    for name, layer in layers.items():
        first, second = (net.get_parameter(each) for each in factor_names(name))
        terms.append(half_squared_norm(*layer.join(first, second)))
    return torch.stack(terms).sum()
