"""Singular value decompositions of weights, cut off at any rank.

The eigenvectors of MᵀM are the right singular vectors; M times each of them gives σ and the left one. That is less work
than a singular value decomposition proper, and it serves every rank at once.

Departures: where σ is below √ε of the largest, the eigenvectors are rounding noise, so the left vectors there need not
be at right angles. The factors' product is M V_r V_rᵀ all the same, and no more than about r ε σ₁² of energy is lost
beyond what must be; at full rank nothing is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.core.tensors import mean_type


@dataclass(frozen=True, eq=False)
class Decomposition:
    """M ~ Σ_i σ_i u_i v_iᵀ, the largest σ first; in a stack of matrices (groups of a convolution), for each of them.

    Where σ is 0, one of its two vectors may be 0 as well. For an M in half precision these are in float32.

    >>> found = decompose(torch.tensor([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]]))
    >>> found.values.tolist(), found.energy.item(), found.lost(1).item()
    ([2.0, 1.0], 5.0, 1.0)
    """

    left: Tensor  # (..., rows, k)
    right: Tensor  # (..., cols, k)
    values: Tensor  # (..., k), σ falling
    energy: Tensor  # (...), ‖M‖²_F in float64

    def factors(self, rank: int) -> tuple[Tensor, Tensor]:
        """U_r √Σ_r and √Σ_r V_rᵀ (FedHM, sec. 3.3: spectral initialisation)."""
        self.require(rank)
        roots = self.values[..., None, :rank].sqrt()
        return self.left[..., :rank] * roots, (self.right[..., :rank] * roots).mT

    def lost(self, rank: int) -> Tensor:
        """‖M - M_r‖²_F = ‖M‖²_F - Σ_{i≤r} σ_i²"""
        self.require(rank)
        kept = self.values[..., :rank].double().square().sum(-1)
        return (self.energy - kept).clamp(min=0)

    def require(self, rank: int) -> None:
        """Refuse a rank that is not there."""
        if not 0 <= rank <= self.values.shape[-1]:
            raise ValueError(f"a rank of {rank} was asked for, but {self.values.shape[-1]} singular values are known")


def decompose(matrix: Tensor) -> Decomposition:
    """All of M = Σ_i σ_i u_i v_iᵀ, from the eigenvectors of MᵀM or M Mᵀ, whichever is smaller."""
    near_one, exponent = to_unit(matrix)
    wide = matrix.shape[-2] < matrix.shape[-1]
    tall = near_one.mT if wide else near_one
    _, vectors = torch.linalg.eigh(tall.mT @ tall)
    vectors = vectors / lengths(vectors)[..., None, :]  # in float32 they may be 1 + 10 ε long
    found = from_images(tall @ vectors, vectors, exponent)
    return pointing(Decomposition(found.right, found.left, found.values, found.energy) if wide else found)


def to_unit(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """M · 2^-e, whose largest entry is near 1, and e: squares of very small or large entries would be 0 or infinite."""
    matrix = matrix.to(mean_type(matrix))
    _, exponent = torch.frexp(matrix.abs().amax((-2, -1), keepdim=True))
    return times_power(matrix, -exponent), exponent


def times_power(tensor: Tensor, exponent: Tensor) -> Tensor:
    """tensor · 2^e in two steps, as 2^e alone may be too large or small for the type."""
    half = exponent // 2
    return tensor * torch.exp2(half.to(tensor.dtype)) * torch.exp2((exponent - half).to(tensor.dtype))


def from_images(images: Tensor, right: Tensor, exponent: Tensor, energy: Tensor | None = None) -> Decomposition:
    """σ_i = ‖M v_i‖ and u_i = M v_i / σ_i, from M v_i and v_i, where 2^e M is the matrix that is decomposed.

    σ as a norm is accurate also where the eigenvalue it could be read off is rounding noise. If no energy of M is
    given, these are all values, and ‖M‖² = Σ σ_i²: what is lost is then exact even if it is less than that rounds to.
    """
    values, order = lengths(images).sort(dim=-1, descending=True, stable=True)
    images, right = (side.take_along_dim(order[..., None, :], -1) for side in (images, right))
    smallest = torch.finfo(values.dtype).tiny ** 0.5 * values[..., :1]  # squares of less are no longer exact
    known = values > smallest
    left = torch.where(known[..., None, :], images / torch.where(known, values, 1.0)[..., None, :], 0.0)
    values = torch.where(known, values, 0.0)
    energy = values.double().square().sum(-1) if energy is None else energy
    return Decomposition(
        left, right, times_power(values, exponent[..., 0]), times_power(energy, 2 * exponent[..., 0, 0])
    )


def lengths(columns: Tensor) -> Tensor:
    """‖·‖ of every column; this sum is more accurate than that in torch.linalg.vector_norm."""
    return columns.square().sum(-2).sqrt()


def pointing(found: Decomposition) -> Decomposition:
    """With signs that make the largest entry of each right vector positive, so that a small change flips no vector."""
    largest = found.right.take_along_dim(found.right.abs().argmax(-2, keepdim=True), -2)
    signs = torch.where(largest < 0, -1.0, 1.0).to(largest.dtype)
    return Decomposition(found.left * signs, found.right * signs, found.values, found.energy)
