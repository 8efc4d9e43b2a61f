"""What bases and coefficients look like: figures 5 and 6 of FLANC's paper."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from potluck.core.panels import Heatmap, Histogram, Panel
from potluck.core.threads import one_thread

LARGEST_MAP = 64  # pieces; the entries of a larger Gram matrix are too small to see


def basis_panels(bases: Mapping[str, Tensor], coefficients: Mapping[str, Mapping[str, Tensor]]) -> list[Panel]:
    """Per layer how orthogonal its basis is; then, per layer and width, how much of the basis its coefficients use."""
    with one_thread():
        maps = [gram_panel(layer, basis) for layer, basis in bases.items()]
        uses: list[Panel] = [
            Histogram(f"{layer}, width {width}: mean |U| of a column", column_means(own[layer], len(basis)))
            for layer, basis in bases.items()
            for width, own in coefficients.items()
            if layer in own
        ]
    return maps + uses


def gram_panel(layer: str, basis: Tensor) -> Panel:
    """The Gram matrix of a basis, entry by entry or, if there are too many, how the entries spread (figure 6)."""
    products = gram(basis)
    if len(products) <= LARGEST_MAP:
        return Heatmap(f"{layer}: V Vᵀ", products)
    apart = ~torch.eye(len(products), dtype=torch.bool)
    mean = float(products.diagonal().mean())
    return Histogram(f"{layer}: V Vᵀ off the diagonal (mean on it: {mean:.3g})", products[apart])


def gram(basis: Tensor) -> Tensor:
    """V Vᵀ, V as R2 rows (FLANC, sec. 3.4); the identity if the pieces are orthogonal and of length 1."""
    rows = basis.flatten(1).double()
    return rows @ rows.T


def column_means(coefficients: Tensor, count: int) -> Tensor:
    """1/R2 Σ_j |U[o, g·R2 + j]| for every output o and group g (FLANC, sec. 3.3, figure 5)."""
    return coefficients.reshape(len(coefficients), -1, count).abs().mean(-1).flatten()
