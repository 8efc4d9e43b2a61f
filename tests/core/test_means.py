"""Means of named tensors, one update after the other."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from potluck.core.means import NameMean
from potluck.core.types import Tensors


def mean_of(state: Tensors, weighted: Iterable[tuple[Tensors, float]]) -> Tensors:
    mean = NameMean(state)
    for tensors, weight in weighted:
        mean.add(tensors, weight)
    return mean.result()


def test_a_mean_is_weighted_and_taken_name_by_name() -> None:
    state = {"w": torch.zeros(2), "b": torch.zeros(1)}
    sent = [
        ({"w": torch.tensor([1.0, 2.0]), "b": torch.tensor([4.0])}, 1),
        ({"w": torch.tensor([5.0, 10.0])}, 3),
    ]
    mean = mean_of(state, sent)
    assert mean["w"].tolist() == [4.0, 8.0]  # (1·1 + 3·5) / 4, (1·2 + 3·10) / 4
    assert mean["b"].tolist() == [4.0]  # over the only one who sent it, not over all


def test_what_nobody_sent_keeps_its_value() -> None:
    state = {"w": torch.tensor([7.0]), "kept": torch.tensor([3.0])}
    mean = mean_of(state, [({"w": torch.tensor([1.0])}, 2)])
    assert mean["kept"].tolist() == [3.0]
    assert list(mean) == ["w", "kept"]


@pytest.mark.parametrize("weighted", [[], [({"w": torch.tensor([1.0])}, 0)]])
def test_without_any_weight_nothing_changes(weighted: list[tuple[Tensors, float]]) -> None:
    assert mean_of({"w": torch.tensor([7.0])}, weighted)["w"].tolist() == [7.0]


@pytest.mark.parametrize(("values", "expected"), [([10, 11, 11], 11), ([3, 3, 4], 3), ([2**53, 2**53, 2**53], 2**53)])
def test_whole_numbers_are_rounded_not_cut(values: list[int], expected: int) -> None:
    state = {"count": torch.tensor(0)}
    mean = mean_of(state, [({"count": torch.tensor(value)}, 1) for value in values])["count"]
    assert mean.dtype == torch.int64
    assert mean.shape == ()
    assert int(mean) == expected


def test_types_survive_the_mean() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool, torch.uint8):
        tensor = torch.ones(2, dtype=dtype)
        mean = mean_of({"t": torch.zeros_like(tensor)}, [({"t": tensor}, 0.5), ({"t": tensor}, 2.0)])["t"]
        assert mean.dtype == dtype
        assert mean.tolist() == tensor.tolist()


def test_neither_state_nor_updates_are_changed() -> None:
    state, sent = {"w": torch.tensor([7.0])}, {"w": torch.tensor([1.0])}
    mean_of(state, [(sent, 2), (sent, 3)])
    assert (state["w"].item(), sent["w"].item()) == (7.0, 1.0)


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=5),
    st.lists(st.integers(1, 1000), min_size=1, max_size=20),
)
def test_equal_contributions_give_back_the_value_exactly(values: list[float], weights: list[int]) -> None:
    tensor = torch.tensor(values)
    mean = mean_of({"w": torch.zeros(len(values))}, [({"w": tensor}, weight) for weight in weights])["w"]
    assert torch.equal(mean, tensor)


def test_the_layout_of_what_is_sent_does_not_show() -> None:
    rng = torch.Generator().manual_seed(0)
    sent = [torch.randn(30, 40, generator=rng) for _ in range(3)]
    plain, turned = (
        mean_of({"w": torch.zeros(30, 40)}, [({"w": tensor}, 1) for tensor in tensors])["w"]
        for tensors in (sent, [tensor.t().contiguous().t() for tensor in sent])
    )
    assert torch.equal(plain, turned)


@given(st.lists(st.tuples(st.floats(-10, 10, width=32), st.integers(1, 99)), min_size=1, max_size=30))
def test_the_mean_is_that_of_float64_sums(sent: list[tuple[float, int]]) -> None:
    mean = mean_of({"w": torch.zeros(1)}, [({"w": torch.tensor([value])}, weight) for value, weight in sent])
    exact = sum(value * weight for value, weight in sent) / sum(weight for _, weight in sent)
    assert abs(mean["w"].item() - exact) <= 3e-5  # 30 updates of at most 10: 30 · 10 · 2⁻²³


def test_no_more_than_one_update_is_held_at_a_time() -> None:
    alive: list[weakref.ref[Tensor]] = []
    most = 0

    def updates() -> Iterator[tuple[Tensors, float]]:
        nonlocal most
        for value in range(6):
            gc.collect()
            most = max(most, sum(ref() is not None for ref in alive))
            tensor = torch.full((3,), float(value))
            alive.append(weakref.ref(tensor))
            yield {"w": tensor}, 1.0
            del tensor

    mean = mean_of({"w": torch.zeros(3)}, updates())
    assert mean["w"].tolist() == [2.5] * 3
    assert most <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
def test_what_was_counted_in_is_not_kept(dtype: torch.dtype) -> None:
    """Nor seen: an engine may write the next update to the same memory."""
    mean, tensor = NameMean({"w": torch.zeros(3, dtype=dtype)}), torch.ones(3, dtype=dtype)
    mean.add({"w": tensor})
    tensor.fill_(9)
    assert mean.result()["w"].tolist() == [1.0] * 3
    alive = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert alive() is None
