"""The leading part of a decomposition by subspace iteration, with a proof that it is good enough, or none at all.

From one round to the next a layer changes little, so the right vectors of the last round are nearly those of this one.
A few products with M turn them into the new ones; how good they are is then shown, not hoped:

With A = MᵀM, let the columns of V be orthonormal Ritz vectors, VᵀAV = Θ diagonal, W the rest of a basis, E = AV - VΘ,
which is at right angles to V, and c ≥ λ_max(WᵀAW). In the basis (V, W), with E's coordinates in W,

    A = [[Θ, Eᵀ], [E, WᵀAW]] ⪯ [[Θ, Eᵀ], [E, c I]].

The eigenvalues of the right side are no smaller, one by one. With E = Q R, Q orthonormal, they are those of the small
B = [[Θ, Rᵀ], [R, c I]], and c for every direction that Q does not reach. Since c I is a block of B, the k largest
eigenvalues of B are at least c themselves (Cauchy), so they are the k largest of all. Hence, for r ≤ k,

    min ‖M - M_r‖²_F = ‖M‖²_F - Σ_{i≤r} λ_i(A) ≥ ‖M‖²_F - Σ_{i≤r} λ_i(B).

c comes from Krylov spaces of random vectors (`largest_outside`). The probability that a call relies on a c that is too
small is at most 10⁻⁶. Rounding is allowed for by a margin that is several times what is seen, not by a proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.parts.decompose import Decomposition, from_images, pointing, to_unit

ITERATIONS = 5  # more would be as much work as the exact way
LARGEST_SHARE = 0.6  # of the singular values; for more of them the exact way is less work
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

    def residual(self) -> Tensor:
        """E = MᵀM V - V Θ"""
        return self.back - self.vectors * self.values.to(self.vectors.dtype)


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
    energy = near_one.double().square().sum()
    noise = ROUNDING * torch.finfo(near_one.dtype).eps * energy

    def close(kept: Tensor, most: Tensor) -> bool:
        """‖M‖² - Σ_{i≤r} θ_i ≤ (1 + tolerance)² (‖M‖² - most_r) for every rank, also if both are wrong by the noise."""
        error, smallest = (energy - sums[[rank - 1 for rank in ranks]] for sums in (kept, most))
        return bool(((error <= noise) | (error + noise <= (1 + tolerance) ** 2 * (smallest - noise))).all())

    ahead = first(near_one, count, start, rng)
    if start is not None:  # vectors of another matrix are hardly ever good enough as they are
        ahead = near_one.T @ (near_one @ ahead)
    for _ in range(ITERATIONS):
        ritz = rotate(near_one, orthonormal(ahead))
        kept = ritz.values.cumsum(0)
        if close(kept, guess(ritz)) and close(kept, most_kept(ritz, largest_outside(near_one, ritz.vectors, rng))):
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


def guess(ritz: Ritz) -> Tensor:
    """`most_kept` if E had orthogonal columns and c were θ_k: costs nothing, shows nothing."""
    outside, reach = ritz.values[-1], ritz.residual().double().square().sum(0)
    middle, half = (ritz.values + outside) / 2, (ritz.values - outside) / 2
    return (middle + (half.square() + reach).sqrt()).sort(descending=True).values.cumsum(0)


def most_kept(ritz: Ritz, outside: Tensor) -> Tensor:
    """Σ_{i≤r} λ_i(B) ≥ Σ_{i≤r} λ_i(MᵀM) for r = 1 … k, B = [[Θ, Rᵀ], [R, c I]]: the most that r values can hold."""
    reach: Tensor = torch.linalg.qr(ritz.residual(), mode="r").R.double()
    inside = torch.diag(ritz.values)
    beyond = outside * torch.eye(len(reach), dtype=torch.float64)
    bound = torch.cat([torch.cat([inside, reach.T], 1), torch.cat([reach, beyond], 1)])
    falling: Tensor = torch.linalg.eigvalsh(bound).flip(0)
    return falling[: len(inside)].cumsum(0)


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
        for _ in range(3):  # what is left may be rounding errors alone, which are along the basis again
            ahead = orthonormal(ahead - basis @ (basis.T @ ahead))
        basis = torch.cat([basis, ahead], dim=1)
        images.append(matrix @ ahead)
        ahead = matrix.T @ images[-1]
    return squared_norm(torch.cat(images, dim=1)) / (1 - short)


def squared_norm(matrix: Tensor) -> Tensor:
    """σ₁² in float64."""
    largest: Tensor = torch.linalg.matrix_norm(matrix, 2).double()
    return largest.square()
