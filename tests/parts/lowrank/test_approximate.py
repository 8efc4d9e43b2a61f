"""Whatever the subspace iteration returns is as good as it says; and it does return something where it should."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from potluck.core.random import stream
from potluck.core.threads import one_thread
from potluck.parts.lowrank import approximate as module
from potluck.parts.lowrank.approximate import ROUNDING, approximate, largest_outside, most_kept, orthonormal, rotate
from potluck.parts.lowrank.decompose import Decomposition, decompose

TOLERANCE = 0.01
SIZE = 150
PLACES = torch.arange(1, SIZE + 1, dtype=torch.float64)


@pytest.fixture(autouse=True, scope="module")
def _alone() -> Iterator[None]:
    """Matrices so small that several threads only wait for each other."""
    with one_thread():
        yield


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=stream(seed, shape), dtype=torch.float64)


def with_values(values: Tensor, rows: int = SIZE, cols: int = SIZE, seed: int = 0) -> Tensor:
    count = min(rows, cols, len(values))
    left, right = (orthonormal(random(side, count, seed=seed + place)) for place, side in enumerate((rows, cols)))
    return (left * values[:count]) @ right.T


def right_vectors(matrix: Tensor) -> Tensor:
    """The leading ones first."""
    vectors: Tensor = torch.linalg.svd(matrix).Vh.T
    return vectors


def within_tolerance(found: Decomposition, matrix: Tensor, ranks: list[int]) -> bool:
    """Checks the product of the factors against LAPACK's decomposition of the same matrix in float64."""
    values = torch.linalg.svdvals(matrix.double()).square()
    rounding = 2 * ROUNDING * torch.finfo(matrix.dtype).eps * values.sum()
    good = True
    for rank in ranks:
        left, right = found.factors(rank)
        error = (matrix.double() - left.double() @ right.double()).square().sum()
        good &= bool(error <= (1 + TOLERANCE) ** 2 * values[rank:].sum() + rounding)
        good &= bool((found.lost(rank) - error).abs() <= rounding)
    return good


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(150, 150), (200, 120), (120, 200), (60, 60)])
@pytest.mark.parametrize(
    "values",
    [PLACES**-1.0, PLACES**-2.0, 0.8**PLACES, torch.where(PLACES <= 12, 1.0, 0.05), (PLACES <= 7).double(), PLACES * 0],
    ids=["1/i", "1/i²", "geometric", "step", "low rank", "zeros"],
)
def test_decaying_spectra_converge(values: Tensor, shape: tuple[int, int], dtype: torch.dtype) -> None:
    matrix = with_values(values, *shape).to(dtype)
    ranks = [12, 3]
    found = approximate(matrix, ranks, None, TOLERANCE, stream(0))
    assert found is not None
    assert within_tolerance(found, matrix, ranks)
    assert found.left.shape == (shape[0], 20)
    assert found.right.shape == (shape[1], 20)
    assert found.left.dtype == found.values.dtype == dtype
    assert (found.values[:-1] >= found.values[1:]).all()
    torch.testing.assert_close(found.right.T @ found.right, torch.eye(20, dtype=dtype), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.energy, matrix.double().square().sum())


def test_vectors_point_where_those_of_the_exact_way_do() -> None:
    matrix = with_values(0.5**PLACES)
    found = approximate(matrix, [5], None, TOLERANCE, stream(0))
    assert found is not None
    exact = decompose(matrix)
    torch.testing.assert_close(found.right[:, :3], exact.right[:, :3], atol=1e-4, rtol=0)
    torch.testing.assert_close(found.left[:, :3], exact.left[:, :3], atol=1e-4, rtol=0)


@st.composite
def spectra(draw: st.DrawFn) -> Tensor:
    """All kinds of falling values, clean or not."""
    kind = draw(st.sampled_from(["power", "geometric", "step", "flat", "cluster", "gaps", "noisy", "levels"]))
    edge = draw(st.integers(1, 30))
    part = draw(st.floats(0.001, 1))
    values = {
        "power": PLACES ** -(3 * part),
        "geometric": (1 - 0.3 * part) ** PLACES,
        "step": torch.where(edge >= PLACES, 1.0, part),
        "flat": torch.ones(SIZE),
        "cluster": torch.where(edge - 3 >= PLACES, 2.0, torch.where(edge + 15 >= PLACES, 1.0, part)),
        "gaps": 1 - 1e-4 * part * PLACES,
        "noisy": torch.where(edge >= PLACES, 1 / PLACES, 0.0) + 0.1 * part * (1 - PLACES / SIZE),
        "levels": torch.where(PLACES <= 1, 1.0, torch.where(edge >= PLACES, 0.03, 0.03 * part)),
    }[kind]
    return values.double()


STARTS: dict[str, Callable[[Tensor], Tensor | None]] = {
    "none": lambda matrix: None,
    "trailing": lambda matrix: right_vectors(matrix).flip(1),
    "leading": right_vectors,
    "all but the first": lambda matrix: right_vectors(matrix)[:, 1:],
    "all but the fifth": lambda matrix: right_vectors(matrix)[:, [place for place in range(SIZE) if place != 4]],
    "one": lambda matrix: right_vectors(matrix)[:, :1],
    "zeros": lambda matrix: torch.zeros_like(matrix[:, :3]),
    "of another": lambda matrix: right_vectors(matrix + 0.1 * matrix.std() * random(SIZE, SIZE, seed=9)),
}


@settings(max_examples=200)
@given(
    spectra(),
    st.sampled_from(sorted(STARTS)),
    st.lists(st.integers(1, 30), min_size=1, max_size=3),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 1000),
)
def test_whatever_is_returned_is_within_tolerance(
    values: Tensor, start: str, ranks: list[int], dtype: torch.dtype, seed: int
) -> None:
    matrix = with_values(values, seed=seed).to(dtype)
    found = approximate(matrix, ranks, STARTS[start](matrix), TOLERANCE, stream(seed))
    assert found is None or within_tolerance(found, matrix, ranks)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("values", [torch.ones(SIZE), 1 - PLACES / SIZE, PLACES**-0.1], ids=["flat", "line", "slow"])
def test_flat_spectra_give_a_good_answer_or_none(values: Tensor, dtype: torch.dtype) -> None:
    matrix = with_values(values.double()).to(dtype)
    found = approximate(matrix, [30, 10], None, TOLERANCE, stream(0))
    assert found is None or within_tolerance(found, matrix, [30, 10])


def test_none_where_convergence_is_too_slow() -> None:
    assert approximate(with_values(1 - PLACES / SIZE), [40], None, 0.001, stream(0)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("missing", [[0], [3], [0, 5, 11], list(range(30))])
def test_a_start_at_right_angles_to_leading_vectors_deceives_nobody(missing: list[int], dtype: torch.dtype) -> None:
    """All residuals are 0 there: only the search outside can see what is missing."""
    matrix = torch.diag(PLACES**-0.5).to(dtype)  # unit vectors: products with M bring in no rounding errors
    start = torch.eye(SIZE, dtype=dtype)[:, [place for place in range(SIZE) if place not in missing]]
    assert residuals_vanish(matrix, start[:, :38])
    found = approximate(matrix, [30, 5], start, TOLERANCE, stream(0))
    assert found is None or within_tolerance(found, matrix, [30, 5])


def residuals_vanish(matrix: Tensor, start: Tensor) -> bool:
    return bool(rotate(matrix, orthonormal(start)).reach() < 1e-6)


def test_a_start_without_one_direction_is_mended_where_there_is_room_for_random_vectors() -> None:
    matrix = torch.diag(0.7**PLACES)
    start = torch.eye(SIZE, dtype=torch.float64)[:, 1:11]
    found = approximate(matrix, [8], start, TOLERANCE, stream(0))
    assert found is not None
    assert within_tolerance(found, matrix, [8])


def iterations(monkeypatch: pytest.MonkeyPatch, matrix: Tensor, start: Tensor | None) -> int:
    """How many were needed until it returned something."""
    calls: list[Tensor] = []
    with monkeypatch.context() as patch:
        patch.setattr(module, "rotate", lambda *given: calls.append(given[1]) or rotate(*given))
        found = approximate(matrix, [12, 4], start, TOLERANCE, stream(0))
    assert found is not None
    assert within_tolerance(found, matrix, [12, 4])
    return len(calls)


def test_a_start_from_a_similar_matrix_needs_fewer_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = with_values(PLACES**-1.0).float()
    earlier = matrix + 0.01 * matrix.std() * random(SIZE, SIZE, seed=5).float()
    for start in (decompose(earlier).right, decompose(earlier).right[:, :20]):
        assert iterations(monkeypatch, matrix, start) == 1
    assert iterations(monkeypatch, matrix, None) > 2


def test_its_own_vectors_are_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = with_values(PLACES**-1.0).float()
    found = approximate(matrix, [12, 4], None, TOLERANCE, stream(0))
    assert found is not None
    assert iterations(monkeypatch, matrix * 1.01, found.right) == 1


def test_the_generator_alone_decides() -> None:
    matrix = with_values(PLACES**-1.0).float()
    first, again, other = (approximate(matrix, [12], None, TOLERANCE, stream(seed)) for seed in (1, 1, 2))
    assert first is not None
    assert again is not None
    assert other is not None
    assert torch.equal(first.left, again.left)
    assert torch.equal(first.right, again.right)
    assert not torch.equal(first.right, other.right)


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e30])
def test_very_small_and_very_large_entries(scale: float) -> None:
    matrix = (with_values(0.7**PLACES) * scale).float()
    found = approximate(matrix, [6], None, TOLERANCE, stream(0))
    assert found is not None
    exact = torch.linalg.svdvals(matrix.double())
    torch.testing.assert_close(found.values[:3].double() / scale, exact[:3] / scale, atol=1e-4, rtol=1e-4)
    assert all(side.isfinite().all() for side in found.factors(6))


def test_left_to_the_exact_way() -> None:
    """Stacks, and ranks that with a tenth more, at least 8, are above 60 % of the smaller side."""
    assert approximate(with_values(0.5**PLACES)[None], [2], None, TOLERANCE, stream(0)) is None
    assert approximate(with_values(0.5**PLACES, 20, 100), [4], None, TOLERANCE, stream(0)) is not None
    assert approximate(with_values(0.5**PLACES, 20, 100), [5], None, TOLERANCE, stream(0)) is None
    assert approximate(with_values(0.5**PLACES), [82], None, TOLERANCE, stream(0)) is None


@settings(max_examples=60)
@given(spectra(), st.integers(1, 40), st.integers(0, 3), st.integers(0, 100))
def test_the_bound_is_one(values: Tensor, count: int, powers: int, seed: int) -> None:
    """No r values hold more than that, at every stage of the iteration, with the smallest c that is allowed."""
    matrix = with_values(values, seed=seed)
    ritz = rotate(matrix, orthonormal(random(SIZE, count, seed=seed)))
    for _ in range(powers):
        ritz = rotate(matrix, orthonormal(ritz.back))
    most = most_kept(ritz.values, exact_outside(matrix, ritz.vectors), ritz.reach())
    exact = torch.linalg.svdvals(matrix).square().cumsum(0)[:count]
    assert (most >= exact - 1e-11).all()
    assert (ritz.values.cumsum(0) <= exact + 1e-11).all()


@pytest.mark.parametrize("angle", [0.01, 0.1, 0.3])
def test_the_bound_is_close_where_the_residual_is_small(angle: float) -> None:
    """λ_1 ≤ θ + ‖E‖² / (θ - c), the classic bound, up to the factor of 2 between one s and the next."""
    matrix = torch.diag(torch.tensor([3.0, 1.0]).double().sqrt())
    ritz = rotate(matrix, torch.tensor([[math.cos(angle)], [math.sin(angle)]]).double())
    outside = 3 * math.sin(angle) ** 2 + math.cos(angle) ** 2
    most = most_kept(ritz.values, torch.tensor(outside), ritz.reach()).item()
    assert 3 <= most <= ritz.values.item() + 2 * ritz.reach().item() ** 2 / (ritz.values.item() - outside)


def test_the_bound_without_a_residual_is_what_there_is() -> None:
    values = torch.tensor([4.0, 2.0, 1.0]).double()
    most = most_kept(values, torch.tensor(1.5).double(), torch.tensor(0.0).double())
    assert most.tolist() == [4.0, 6.0, 7.5]


def exact_outside(matrix: Tensor, vectors: Tensor) -> Tensor:
    """λ_max(WᵀMᵀMW)"""
    rest = torch.linalg.qr(vectors, mode="complete").Q[:, vectors.shape[1] :]
    largest: Tensor = torch.linalg.matrix_norm(matrix @ rest, 2).square()
    return largest


@settings(max_examples=60)
@given(spectra(), st.integers(1, 140), st.integers(0, 100))
def test_nothing_outside_is_larger(values: Tensor, count: int, seed: int) -> None:
    """c is an upper bound, but not a useless one."""
    matrix = with_values(values, seed=seed)
    vectors = orthonormal(random(SIZE, count, seed=seed))
    exact = exact_outside(matrix, vectors)
    assert exact * (1 - 1e-9) <= largest_outside(matrix, vectors, stream(seed)) <= 1.1 * exact
