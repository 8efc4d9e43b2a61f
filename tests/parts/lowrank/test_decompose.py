"""Decompositions against LAPACK's, over shapes, ranks, stacks and awkward spectra."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from potluck.core.random import stream
from potluck.core.threads import one_thread
from potluck.parts.lowrank.decompose import Decomposition, decompose

FEW = settings(max_examples=80)
SHAPES = st.one_of(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 7)),
)


@pytest.fixture(autouse=True, scope="module")
def _alone() -> Iterator[None]:
    """Matrices so small that several threads only wait for each other."""
    with one_thread():
        yield


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=stream(seed, shape), dtype=torch.float64).to(dtype)


def with_values(values: Tensor, rows: int, cols: int, seed: int = 0) -> Tensor:
    left, right = (torch.linalg.qr(random(side, len(values), seed=seed + side)).Q for side in (rows, cols))
    return (left * values) @ right.T


def product(factors: tuple[Tensor, Tensor]) -> Tensor:
    return factors[0].double() @ factors[1].double()


def best(matrix: Tensor, rank: int) -> Tensor:
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    return (left[..., :rank] * values[..., None, :rank]) @ right[..., :rank, :]


def squared(matrix: Tensor) -> Tensor:
    return matrix.double().square().sum((-2, -1))


@FEW
@given(SHAPES, st.integers(0, 100), st.data())
def test_it_agrees_with_lapack(shape: tuple[int, ...], seed: int, data: st.DataObject) -> None:
    matrix = random(*shape, seed=seed)
    found = decompose(matrix)
    count = min(shape[-2:])
    assert found.left.shape == (*shape[:-1], count)
    assert found.right.shape == (*shape[:-2], shape[-1], count)
    torch.testing.assert_close(found.values, torch.linalg.svdvals(matrix), atol=1e-7, rtol=0)
    torch.testing.assert_close(found.energy, squared(matrix), atol=0, rtol=1e-12)
    rank = data.draw(st.integers(1, count))
    error = squared(matrix - product(found.factors(rank)))
    smallest = squared(matrix - best(matrix, rank))
    torch.testing.assert_close(error, smallest, atol=1e-12, rtol=1e-9)
    torch.testing.assert_close(found.lost(rank), smallest, atol=1e-12, rtol=1e-9)


@FEW
@given(SHAPES, st.integers(0, 100))
def test_at_full_rank_nothing_is_lost(shape: tuple[int, ...], seed: int) -> None:
    matrix = random(*shape, seed=seed)
    found = decompose(matrix)
    assert (product(found.factors(min(shape[-2:]))) - matrix).abs().max() < 1e-10
    assert found.lost(min(shape[-2:])).abs().max() == 0


def test_the_truncated_product_is_the_best_one_where_there_is_only_one() -> None:
    matrix = with_values(torch.tensor([5.0, 4.0, 2.0, 1.0, 0.5]).double(), 12, 9)
    for rank in range(1, 6):
        assert (product(decompose(matrix).factors(rank)) - best(matrix, rank)).abs().max() < 1e-12


def test_both_factors_carry_the_root_of_the_values() -> None:
    """M = 4 u vᵀ with unit vectors u, v: factors 2 u and 2 vᵀ."""
    left, right = decompose(torch.tensor([[0.0, 4.0], [0.0, 0.0]])).factors(1)
    assert left.tolist() == [[2.0], [0.0]]
    assert right.tolist() == [[0.0, 2.0]]


@pytest.mark.parametrize("shape", [(64, 64), (96, 40), (40, 96), (3, 30, 50)])
@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0, 2.0])
def test_float32_loses_hardly_more_than_must_be(shape: tuple[int, ...], decay: float) -> None:
    scale = torch.arange(1, shape[-1] + 1) ** -decay
    matrix = random(*shape, dtype=torch.float32) * scale
    found = decompose(matrix)
    assert found.values.dtype == found.left.dtype == torch.float32
    energy = squared(matrix)
    for rank in (1, 5, 20, 30):
        smallest = squared(matrix - best(matrix, rank))
        assert (
            (squared(matrix - product(found.factors(rank))) - smallest).abs() < 1e-5 * smallest + 1e-6 * energy
        ).all()
        assert ((found.lost(rank) - smallest).abs() < 1e-5 * smallest + 1e-6 * energy).all()


@pytest.mark.parametrize(
    "values",
    [
        [1.0] * 8,
        [1.0, 1.0, 1.0, 0.5, 0.5, 0.5],
        [1.0, 1 - 1e-13, 1 - 2e-13, 0.1],
        [1.0, 1e-9, 1e-9, 1e-12],
        [3.0, 2.0, 0.0, 0.0, 0.0],
        [1.0, 1e-170],
    ],
)
@pytest.mark.parametrize("shape", [(20, 11), (11, 20)])
def test_clusters_and_missing_ranks(values: list[float], shape: tuple[int, int]) -> None:
    exact = torch.tensor(values, dtype=torch.float64)
    matrix = with_values(exact, *shape)
    found = decompose(matrix)
    for side in (*found.factors(11), found.left, found.right):
        assert side.isfinite().all()
    assert (found.values[:-1] >= found.values[1:]).all()
    accuracy = torch.where(exact > 1e-8, 1e-14, 1e-9)  # below √ε the directions are noise
    assert ((found.values[: len(exact)] - exact).abs() < accuracy).all()
    assert (found.values[len(exact) :] < 1e-9).all()
    for rank in range(12):
        assert abs(squared(matrix - product(found.factors(rank))) - exact[rank:].square().sum()) < 1e-13


def test_small_values_are_not_read_off_noisy_eigenvalues() -> None:
    """σ² = 10⁻²⁰ is far below what the eigenvalues of MᵀM are accurate to."""
    matrix = with_values(torch.tensor([1.0, 1e-10]).double(), 2, 2)
    assert abs(decompose(matrix).values[1] - 1e-10) < 1e-15


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (1, 6), (6, 1), (1, 1), (2, 4, 3)])
def test_zeros(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    found = decompose(torch.zeros(shape, dtype=dtype))
    left, right = found.factors(min(shape[-2:]))
    assert not left.any()
    assert not right.any()
    assert not found.values.any()
    assert not found.energy.any()
    assert not found.lost(0).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [2.0**-40, 0.75, 2.0**40])
def test_very_small_and_very_large_entries(dtype: torch.dtype, size: float) -> None:
    """Entries whose squares are 0 or infinite in their type give the values and directions of ordinary ones."""
    limits = torch.finfo(dtype)
    factor = {2.0**-40: limits.tiny, 0.75: 1.0, 2.0**40: limits.max / 2**10}[size]
    ordinary = torch.tensor([[3.0, 0.0], [4.0, 5.0], [0.0, 0.0]], dtype=dtype) / 8
    found, expected = decompose(ordinary * factor), decompose(ordinary)
    torch.testing.assert_close(found.values / factor, expected.values)
    torch.testing.assert_close(found.right, expected.right)
    assert all(side.isfinite().all() for side in found.factors(2))


def test_denormals() -> None:
    matrix = torch.tensor([[1e-44, 0.0], [0.0, 3e-45]])
    found = decompose(matrix)
    left, right = found.factors(2)
    assert torch.equal(left @ right, matrix)
    assert found.energy > 0
    assert decompose(matrix.double() * 1e-278).values[0] > 0


def test_a_stack_is_decomposed_matrix_by_matrix() -> None:
    stack = random(4, 6, 5) * torch.tensor([1.0, 0.0, 1e-3, 1e3]).double()[:, None, None]
    found = decompose(stack)
    for place, matrix in enumerate(stack):
        alone = decompose(matrix)
        for name in ("left", "right", "values", "energy"):
            torch.testing.assert_close(getattr(found, name)[place], getattr(alone, name))


@pytest.mark.parametrize("shape", [(9, 7), (7, 9)])
def test_small_changes_flip_no_vector(shape: tuple[int, int]) -> None:
    matrix = with_values(torch.tensor([4.0, 3.0, 2.0, 1.0]).double(), *shape)
    found = decompose(matrix)
    assert (found.right.take_along_dim(found.right.abs().argmax(0, keepdim=True), 0)[:, :4] > 0).all()
    for changed in (matrix + 1e-9 * random(*shape, seed=1), matrix * 1.5, matrix.float()):
        again = decompose(changed)
        assert (again.right.double()[:, :4] - found.right[:, :4]).abs().max() < 1e-5
        assert (again.left.double()[:, :4] - found.left[:, :4]).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    matrix = random(6, 4, dtype=dtype)
    found, expected = decompose(matrix), decompose(matrix.float())
    assert found.values.dtype == torch.float32
    assert torch.equal(found.left, expected.left)


def test_what_is_lost_is_never_negative() -> None:
    """The values of an approximation may have a rounding error more energy than the matrix."""
    found = Decomposition(
        torch.ones(1, 1), torch.ones(1, 1), torch.ones(1), torch.tensor(1 - 1e-9, dtype=torch.float64)
    )
    assert found.lost(1) == 0


@pytest.mark.parametrize("rank", [-1, 4])
def test_a_rank_that_is_not_there_is_refused(rank: int) -> None:
    found = decompose(random(3, 5))
    with pytest.raises(ValueError, match=f"rank of {rank} .* 3 singular values"):
        found.factors(rank)
    with pytest.raises(ValueError, match=f"rank of {rank} .* 3 singular values"):
        found.lost(rank)
