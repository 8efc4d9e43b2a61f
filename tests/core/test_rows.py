"""Updates of clients trained at once: each is its own, and all are checked and averaged at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from potluck.core.guard import norm
from potluck.core.means import NameMean
from potluck.core.rows import Row, mean_of_rows, rows_of, stacked
from potluck.core.types import Tensors

WEIGHTS = st.lists(st.sampled_from([0.5, 1.0, 3.0, 7.0, 100.0]), min_size=1, max_size=6)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def payload(seed: int) -> Tensors:
    return {"w": random(4, 3, seed=seed), "b": random(4, seed=seed + 50), "count": torch.tensor(seed)}


def test_every_row_is_a_clients_own_tensors_and_no_copy() -> None:
    together = {"w": random(3, 4, 2), "n": torch.arange(3)}
    rows = rows_of(together)
    assert [row.number for row in rows] == [0, 1, 2]
    for number, row in enumerate(rows):
        assert set(row) == {"w", "n"}
        assert row["w"].equal(together["w"][number])
        assert row["n"].shape == ()
        assert row.stack is rows[0].stack
    rows[1]["w"][0, 0] = 9.0
    assert together["w"][1, 0, 0] == 9.0
    assert rows_of({}) == []


def test_a_row_cannot_be_given_another_tensor_which_a_mean_would_not_see() -> None:
    (row,) = rows_of({"w": random(1, 4)})
    with pytest.raises(TypeError, match="make a copy"):
        row["w"] = torch.zeros(4)
    assert dict(row, w=torch.zeros(4))["w"].sum() == 0


def test_payloads_that_look_like_the_first_are_stacked() -> None:
    odd = {"w": torch.zeros(2)}
    given = [{}, payload(1), odd, payload(2)]
    found = stacked(given)
    assert [isinstance(each, Row) for each in found] == [False, True, False, True]
    assert found[0] == {}
    assert found[2] is odd
    for at in (1, 3):
        assert all(found[at][name].equal(given[at][name]) for name in given[at])
    assert found[1].stack is found[3].stack  # type: ignore[attr-defined]
    assert stacked([{}, {}]) == [{}, {}]  # nobody answered


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.bool, torch.cfloat])
def test_the_norms_of_rows_are_those_of_the_clients(dtype: torch.dtype) -> None:
    together = {"a": (10 * random(3, 5)).to(dtype), "b": random(3, 2, 2)}
    for row in rows_of(together):
        assert row.stack.norms[row.number] == pytest.approx(norm(dict(row)), rel=1e-3)
        assert norm(row) == pytest.approx(norm(dict(row)), rel=1e-3)


def test_a_norm_that_only_overflows_in_float32_is_still_found() -> None:
    rows = rows_of({"w": torch.tensor([[3e38, 3e38], [1.0, 2.0], [math.inf, 0.0], [math.nan, 0.0]])})
    assert norm(rows[0]) == pytest.approx(3e38 * math.sqrt(2))
    assert norm(rows[1]) == pytest.approx(math.sqrt(5))
    assert norm(rows[2]) == math.inf
    assert math.isnan(norm(rows[3]))


@given(WEIGHTS, st.integers(0, 99))
def test_a_mean_of_rows_is_the_weighted_mean(weights: list[float], seed: int) -> None:
    values, share = random(len(weights), 4, 3, seed=seed), torch.tensor(weights, dtype=torch.float64)
    expected = (values.double() * share[:, None, None]).sum(0) / share.sum()
    assert torch.allclose(mean_of_rows(values, share).double(), expected, atol=1e-5)


@given(WEIGHTS, st.data())
def test_each_row_of_a_tensor_may_have_weights_of_its_own(weights: list[float], data: st.DataObject) -> None:
    held = [data.draw(st.lists(st.booleans(), min_size=4, max_size=4)) for _ in weights]
    share = torch.tensor(held) * torch.tensor(weights, dtype=torch.float64)[:, None]
    values = random(len(weights), 4, 3)
    found = mean_of_rows(values, share)
    for row in range(4):
        if share[:, row].sum() > 0:
            expected = (values[:, row].double() * share[:, row, None]).sum(0) / share[:, row].sum()
            assert torch.allclose(found[row].double(), expected, atol=1e-5)


@given(WEIGHTS, st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_equal_rows_give_back_their_value_exactly(weights: list[float], value: float) -> None:
    share = torch.tensor(weights, dtype=torch.float64)
    assert (mean_of_rows(torch.full((len(weights), 5), value), share) == value).all()
    others = (
        torch.cat([torch.zeros(1, 2), torch.ones(len(weights), 2)]) * torch.cat([torch.ones(1), share.float()])[:, None]
    )
    values = torch.full((len(weights) + 1, 2, 3), value)
    values[0] = 17.0  # a client that does not have these rows
    assert (mean_of_rows(values, others) == value).all()


@given(WEIGHTS, st.integers(0, 5))
@example([3.0, 0.5, 0.5, 3.0], 5)  # the mean of the whole numbers is 1.5
def test_a_mean_takes_rows_at_once_as_it_takes_them_one_by_one(weights: list[float], left_out: int) -> None:
    state, sent = payload(99), [payload(seed) for seed in range(len(weights))]
    at_once, one_by_one = NameMean(state), NameMean(state)
    for number, (row, weight) in enumerate(zip(stacked(sent), weights, strict=True)):
        if number != left_out:
            at_once.add(row, weight)
            one_by_one.add(dict(row), weight)
    assert not any(len(mean.means) for mean in (at_once,))  # it waits for all of them
    found, expected = at_once.result(), one_by_one.result()
    for name in state:
        assert found[name].dtype == state[name].dtype
        assert torch.allclose(found[name].double(), expected[name].double(), atol=1e-5)


def test_rows_of_several_stacks_and_others_count_each_with_its_weight() -> None:
    state = {"w": torch.zeros(2)}
    mean = NameMean(state)
    first, second = (stacked([{"w": torch.full((2,), float(value))} for value in pair]) for pair in ((1, 3), (5, 7)))
    mean.add(first[0], 1.0)
    mean.add(first[1], 1.0)
    mean.add({"w": torch.full((2,), 100.0)}, 2.0)
    mean.add(second[0], 3.0)
    mean.add(second[1], 1.0)
    mean.add(first[0], 0.0)  # does not count
    mean.add(first[1], 2.0)  # right after rows of another stack
    mean.add(first[0], 2.0)
    assert mean.result()["w"].tolist() == pytest.approx([(1 + 3 + 200 + 15 + 7 + 6 + 2) / 12] * 2)


def test_sums_are_taken_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a sum is split over threads shows in its last bits, on some processors."""
    used: list[int] = []

    def noted(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def noting(*arguments: Any, **named: Any) -> Tensor:
            used.append(torch.get_num_threads())
            return call(*arguments, **named)

        return noting

    monkeypatch.setattr(torch, "mv", noted(torch.mv))
    monkeypatch.setattr(torch.linalg, "vector_norm", noted(torch.linalg.vector_norm))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (row,) = rows_of({"w": random(1, 4)})
        assert len(row.stack.norms) == 1
        mean_of_rows(random(3, 4), torch.ones(3))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(used) == {1}


def test_whole_numbers_beyond_float32_are_averaged_exactly() -> None:
    large = 2**24 + 1
    mean = NameMean({"count": torch.tensor(0)})
    for row in stacked([{"count": torch.tensor(large)}, {"count": torch.tensor(large + 2)}]):
        mean.add(row)
    assert mean.result()["count"] == large + 1
