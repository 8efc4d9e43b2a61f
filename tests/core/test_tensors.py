"""Arithmetic on named tensors, and moving them in and out of networks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from potluck.core.errors import ModelError
from potluck.core.tensors import (
    CHUNK,
    approach,
    load,
    restore_type,
    serial,
    size_in_bytes,
    state_of,
)

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


def test_restoring_a_type_rounds_to_the_nearest() -> None:
    mean = torch.tensor([1.4, 1.6, -1.6], dtype=torch.float64)
    assert restore_type(mean, torch.zeros(1, dtype=torch.int32)).tolist() == [1, 2, -2]
    assert restore_type(mean, torch.zeros(1)).dtype == torch.float32
