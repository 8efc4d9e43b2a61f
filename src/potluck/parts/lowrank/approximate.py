"""The leading part of a decomposition by subspace iteration, with a proof that it is good enough, or none at all.

From one round to the next a layer changes little, so the right vectors of the last round are nearly those of this one.
A few products with M turn them into the new ones; how good they are is then shown, not hoped:

With A = MᵀM, let the columns of V be orthonormal Ritz vectors, VᵀAV = Θ diagonal, W the rest of a basis, E = AV - VΘ,
which is at right angles to V, and c ≥ λ_max(WᵀAW). In the basis (V, W), with E's coordinates in W,

    A = [[Θ, Eᵀ], [E, WᵀAW]] ⪯ [[Θ + EᵀE / s, 0], [0, (c + s) I]]    for every s > 0,

as [[EᵀE / s, -Eᵀ], [-E, s I]] ⪰ 0. The eigenvalues of the right side are no smaller, one by one, and so they stay if
every θ below c + s is raised to it. Then the k ones of the upper block are the largest of all, and the sum of the r
largest of a sum of matrices is at most the sum of theirs (Fan). Hence, for r ≤ k,

    min ‖M - M_r‖²_F = ‖M‖²_F - Σ_{i≤r} λ_i(A) ≥ ‖M‖²_F - Σ_{i≤r} max(θ_i, c + s) - ‖E‖²_F / s.

c comes from Krylov spaces of random vectors (`largest_outside`). The probability that a call relies on a c that is too
small is at most 10⁻⁶. Rounding is allowed for by a margin that is several times what is seen, not by a proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.parts.lowrank.decompose import Decomposition, from_images, pointing, to_unit

ITERATIONS = 5  # more of them would cost as much as the exact way
LARGEST_SHARE = 0.6  # of the singular values; beyond it the exact way is cheaper
FAILURE = 1e-6 / ITERATIONS  # the probability with which one c may be too small
VECTORS, STEPS = 8, 10  # of the Krylov spaces c comes from
ROUNDING = 10  # units ε ‖M‖² by which sums of squares may be wrong


@dataclass(frozen=True, eq=False)
class Ritz:
    """Ritz vectors V of MᵀM, the largest value first: what M knows of itself in their span."""

    vectors: Tensor  # V, (cols, k), orthonormal
    images: Tensor  # M V
    values: Tensor  # θ, (k,), in float64
    back: Tensor  # MᵀM V, the next iterate

    def reach(self) -> Tensor:
        """‖E‖_F, E = MᵀM V - V Θ, in float64"""
        residual = self.back - self.vectors * self.values.to(self.vectors.dtype)
        norm: Tensor = torch.linalg.vector_norm(residual, dtype=torch.float64)
        return norm


def approximate(
    matrix: Tensor, ranks: Sequence[int], start: Tensor | None, tolerance: float, rng: torch.Generator
) -> Decomposition | None:
    """The leading part of a decomposition by subspace iteration from `start`, or None where it cannot be shown that for
    every one of `ranks` the error ‖M - M_r‖_F is within `tolerance` (0.01) of the smallest possible.

    `start` are right vectors of a similar matrix, any number of them. Errors below what M's own type rounds to count as
    none. Stacks of matrices are left to `decompose`.
    """
    count = max(ranks) + max(8, math.ceil(max(ranks) / 10))
    if matrix.dim() != 2 or count > LARGEST_SHARE * min(matrix.shape):
        return None
    near_one, exponent = to_unit(matrix)
    energy = torch.linalg.vector_norm(near_one, dtype=torch.float64).square()
    noise = ROUNDING * torch.finfo(near_one.dtype).eps * energy

    def close(kept: Tensor, most: Tensor) -> bool:
        """‖M‖² - Σ_{i≤r} θ_i ≤ (1 + tolerance)² (‖M‖² - most_r) for every rank, also if both are wrong by the noise."""
        error, smallest = (energy - sums[[rank - 1 for rank in ranks]] for sums in (kept, most))
        return bool(((error <= noise) | (error + noise <= (1 + tolerance) ** 2 * (smallest - noise))).all())

    ahead = first(near_one, count, start, rng)
    if start is not None:  # the vectors of another matrix are rarely good enough as they are
        ahead = near_one.T @ (near_one @ ahead)
    for _ in range(ITERATIONS):
        ritz = rotate(near_one, orthonormal(ahead))
        kept, reach = ritz.values.cumsum(0), ritz.reach()
        likely = most_kept(ritz.values, ritz.values[-1], reach)  # c is hardly ever less than θ_k, and much work to find
        if close(kept, likely) and close(
            kept, most_kept(ritz.values, largest_outside(near_one, ritz.vectors, rng), reach)
        ):
            return pointing(from_images(ritz.images, ritz.vectors, exponent, energy))
        ahead = ritz.back
    return None


def first(matrix: Tensor, count: int, start: Tensor | None, rng: torch.Generator) -> Tensor:
    """As many of the vectors to start from as are needed, and random ones for those that are missing."""
    near = matrix.new_empty(matrix.shape[1], 0) if start is None else start[:, :count].to(matrix)
    return torch.cat([near, random_vectors(matrix, count - near.shape[1], rng)], dim=1)


def random_vectors(matrix: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """Vectors that M can be multiplied with, whose directions are uniformly distributed."""
    return torch.randn(matrix.shape[1], count, dtype=matrix.dtype, generator=rng)


def orthonormal(vectors: Tensor) -> Tensor:
    """An orthonormal basis of at least their span."""
    basis: Tensor = torch.linalg.qr(vectors).Q
    return basis


def rotate(matrix: Tensor, basis: Tensor) -> Ritz:
    """The Ritz vectors in the span of an orthonormal basis."""
    images = matrix @ basis
    turn = torch.linalg.eigh(images.T @ images).eigenvectors.flip(1)
    images = images @ turn
    values, order = images.double().square().sum(0).sort(descending=True, stable=True)
    images = images[:, order]
    return Ritz(basis @ turn[:, order], images, values, matrix.T @ images)


def most_kept(values: Tensor, outside: Tensor, reach: Tensor) -> Tensor:
    """Σ_{i≤r} max(θ_i, c + s) + ‖E‖² / s ≥ Σ_{i≤r} λ_i(MᵀM) for r = 1 … k, with the best s of a few for each r."""
    reach = reach.clamp(min=1e-100)  # no residual at all needs hardly any slack
    slack = reach * 2.0 ** torch.arange(8, -9, -1, dtype=torch.float64)[:, None]
    return (values.maximum(outside + slack).cumsum(1) + reach / slack * reach).amin(0)


def largest_outside(matrix: Tensor, vectors: Tensor, rng: torch.Generator) -> Tensor:
    """c ≥ λ_max(WᵀMᵀMW), W at right angles to the vectors, but with a probability of at most FAILURE.

    In n dimensions, the largest Ritz value in the Krylov space of q steps from one random vector is below (1 - ε) λ_max
    with a probability of at most 1.648 √n exp(-√ε (2q - 1)) (Kuczyński and Woźniakowski 1992, Estimating the largest
    eigenvalue). The space of b vectors holds the spaces of all, so it misses only if all b do: probabilities multiply.
    """
    dimensions = matrix.shape[1] - vectors.shape[1]
    if dimensions <= VECTORS * STEPS:  # no room for the Krylov space, and all of W costs no more
        return squared_norm(matrix @ torch.linalg.qr(vectors, mode="complete").Q[:, -dimensions:])
    one_misses = math.log(1.648 * math.sqrt(dimensions)) - math.log(FAILURE) / VECTORS
    short = (one_misses / (2 * STEPS - 1)) ** 2
    basis, images = vectors, []
    ahead = random_vectors(matrix, VECTORS, rng)
    for _ in range(STEPS):
        ahead = at_right_angles(ahead, basis)
        basis = torch.cat([basis, ahead], dim=1)
        images.append(matrix @ ahead)
        ahead = (images[-1].T @ matrix).T  # reads M row by row, which matrix.T @ images does not
    return squared_norm(torch.cat(images, dim=1)) / (1 - short)


def at_right_angles(vectors: Tensor, basis: Tensor) -> Tensor:
    """An orthonormal basis of at least what the vectors span beyond `basis`."""
    vectors = orthonormal(vectors - basis @ (basis.T @ vectors))
    for _ in range(2):  # what was left may be rounding errors alone, which are along the basis again
        rest = vectors - basis @ (basis.T @ vectors)
        vectors = orthonormal(rest)
        if (rest.square().sum(0) > 0.5).all():
            break
    return vectors


def squared_norm(matrix: Tensor) -> Tensor:
    """σ₁² in float64."""
    wide = matrix.double()
    squares: Tensor = torch.linalg.eigvalsh(wide.T @ wide)
    return squares[-1]
