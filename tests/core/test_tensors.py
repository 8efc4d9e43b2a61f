"""Means of named tensors, and moving them in and out of networks."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from potluck.core.errors import ModelError, UpdateError
from potluck.core.tensors import (
    CHUNK,
    approach,
    load,
    mean_by_name,
    require_finite,
    restore_type,
    serial,
    size_in_bytes,
    state_of,
)
from potluck.core.types import Tensors


def test_a_mean_is_weighted_and_taken_name_by_name() -> None:
    state = {"w": torch.zeros(2), "b": torch.zeros(1)}
    sent = [
        ({"w": torch.tensor([1.0, 2.0]), "b": torch.tensor([4.0])}, 1),
        ({"w": torch.tensor([5.0, 10.0])}, 3),
    ]
    mean = mean_by_name(state, sent)
    assert mean["w"].tolist() == [4.0, 8.0]  # (1·1 + 3·5) / 4, (1·2 + 3·10) / 4
    assert mean["b"].tolist() == [4.0]  # over the only one who sent it, not over all


def test_what_nobody_sent_keeps_its_value() -> None:
    state = {"w": torch.tensor([7.0]), "kept": torch.tensor([3.0])}
    mean = mean_by_name(state, [({"w": torch.tensor([1.0])}, 2)])
    assert mean["kept"].tolist() == [3.0]
    assert list(mean) == ["w", "kept"]


@pytest.mark.parametrize("weighted", [[], [({"w": torch.tensor([1.0])}, 0)]])
def test_without_any_weight_nothing_changes(weighted: list[tuple[Tensors, float]]) -> None:
    assert mean_by_name({"w": torch.tensor([7.0])}, weighted)["w"].tolist() == [7.0]


@pytest.mark.parametrize(("values", "expected"), [([10, 11, 11], 11), ([3, 3, 4], 3), ([2**53, 2**53, 2**53], 2**53)])
def test_whole_numbers_are_rounded_not_cut(values: list[int], expected: int) -> None:
    state = {"count": torch.tensor(0)}
    mean = mean_by_name(state, [({"count": torch.tensor(value)}, 1) for value in values])["count"]
    assert mean.dtype == torch.int64
    assert mean.shape == ()
    assert int(mean) == expected


def test_types_survive_the_mean() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool, torch.uint8):
        tensor = torch.ones(2, dtype=dtype)
        mean = mean_by_name({"t": torch.zeros_like(tensor)}, [({"t": tensor}, 0.5), ({"t": tensor}, 2.0)])["t"]
        assert mean.dtype == dtype
        assert mean.tolist() == tensor.tolist()


def test_neither_state_nor_updates_are_changed() -> None:
    state, sent = {"w": torch.tensor([7.0])}, {"w": torch.tensor([1.0])}
    mean_by_name(state, [(sent, 2), (sent, 3)])
    assert (state["w"].item(), sent["w"].item()) == (7.0, 1.0)


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=5),
    st.lists(st.integers(1, 1000), min_size=1, max_size=20),
)
def test_equal_contributions_give_back_the_value_exactly(values: list[float], weights: list[int]) -> None:
    tensor = torch.tensor(values)
    mean = mean_by_name({"w": torch.zeros(len(values))}, [({"w": tensor}, weight) for weight in weights])["w"]
    assert torch.equal(mean, tensor)


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=True)


@given(FINITE, st.floats(0, 1))
def test_approaching_an_equal_value_changes_nothing(value: float, ratio: float) -> None:
    for share in (ratio, torch.full((9,), ratio)):
        mean = torch.full((9,), value)
        approach(mean, mean.clone(), share)
        assert mean.tolist() == [value] * 9


@given(st.floats(width=32), FINITE)
def test_a_ratio_of_one_gives_the_new_value_whatever_was_there(old: float, new: float) -> None:
    for share in (1.0, torch.ones(9)):
        mean = torch.full((9,), old)
        approach(mean, torch.full((9,), new), share, anew=True)
        assert mean.tolist() == [new] * 9


@pytest.mark.parametrize("shape", [(40_000,), (3, 50_001), (300, 2, 211), (1, 1, 99_999)])
def test_pieces_are_too_small_for_threads_and_cover_everything(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    seen, row = torch.zeros(shape), torch.arange(shape[-1])
    for piece, part in serial(seen, row.view(*[1] * (len(shape) - 1), -1)):
        assert piece.numel() <= CHUNK
        assert piece.dim() == 1 or part.shape[-1] == piece.shape[-1]
        piece += 1 + part
    assert torch.equal(seen, (1.0 + row).expand(shape))


def test_the_layout_of_what_is_sent_does_not_show() -> None:
    rng = torch.Generator().manual_seed(0)
    sent = [torch.randn(30, 40, generator=rng) for _ in range(3)]
    plain, turned = (
        mean_by_name({"w": torch.zeros(30, 40)}, [({"w": tensor}, 1) for tensor in tensors])["w"]
        for tensors in (sent, [tensor.t().contiguous().t() for tensor in sent])
    )
    assert torch.equal(plain, turned)


@given(st.lists(st.tuples(st.floats(-10, 10, width=32), st.integers(1, 99)), min_size=1, max_size=30))
def test_the_mean_is_that_of_float64_sums(sent: list[tuple[float, int]]) -> None:
    mean = mean_by_name({"w": torch.zeros(1)}, [({"w": torch.tensor([value])}, weight) for value, weight in sent])
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

    mean = mean_by_name({"w": torch.zeros(3)}, updates())
    assert mean["w"].tolist() == [2.5] * 3
    assert most <= 1


def test_size_counts_every_type_by_its_bytes() -> None:
    tensors = {"a": torch.zeros(3, 2), "b": torch.zeros(3, dtype=torch.int64), "c": torch.zeros(4, dtype=torch.bool)}
    assert size_in_bytes(tensors) == 24 + 24 + 4
    assert size_in_bytes({"scalar": torch.tensor(1.0), "empty": torch.zeros(0)}) == 4


def test_state_is_detached_live_and_has_buffers() -> None:
    net = nn.BatchNorm1d(2)
    state = state_of(net)
    assert set(state) == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
    assert not any(tensor.requires_grad for tensor in state.values())
    net.weight.data.fill_(5)
    assert state["weight"].tolist() == [5, 5]


def test_load_copies_into_the_network() -> None:
    net, weight = nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 2.0]])
    load(net, {"weight": weight})
    weight.zero_()
    assert net.weight.tolist() == [[1.0, 2.0]]


def test_load_refuses_missing_and_unknown_names_but_the_optional() -> None:
    net = nn.Linear(2, 1)
    with pytest.raises(ModelError, match="'bias'"):
        load(net, {"weight": torch.zeros(1, 2)})
    with pytest.raises(ModelError, match="'gain'"):
        load(net, {"weight": torch.zeros(1, 2), "bias": torch.zeros(1), "gain": torch.zeros(1)})
    load(net, {"weight": torch.full((1, 2), 3.0)}, optional=["bias"])
    assert net.weight.tolist() == [[3.0, 3.0]]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_refused_by_name(bad: float) -> None:
    with pytest.raises(UpdateError, match=r"'layer\.bad'"):
        require_finite({"fine": torch.ones(2), "layer.bad": torch.tensor([0.0, bad])})


def test_whole_numbers_and_finite_values_are_let_through() -> None:
    require_finite(
        {"count": torch.tensor(2**62), "flag": torch.tensor([True]), "w": torch.tensor([1e38]), "e": torch.zeros(0)}
    )


def test_restoring_a_type_rounds_to_the_nearest() -> None:
    mean = torch.tensor([1.4, 1.6, -1.6], dtype=torch.float64)
    assert restore_type(mean, torch.zeros(1, dtype=torch.int32)).tolist() == [1, 2, -2]
    assert restore_type(mean, torch.zeros(1)).dtype == torch.float32
