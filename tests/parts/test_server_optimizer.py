"""A server's optimiser: its rules on numbers, and that only what somebody covered moves."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from potluck.core.means import NameMean
from potluck.core.types import Tensors
from potluck.parts.cut.kept import Kept
from potluck.parts.cut.mean import HolderMean
from potluck.parts.cut.plan import Plan
from potluck.parts.server_optimizer import MOMENTS, Adagrad, Adam, Momentum, Optimizer, Yogi, moment, weights_of

ALL: list[Optimizer] = [Momentum(lr=0.5), Adagrad(lr=0.5), Yogi(lr=0.5), Adam(lr=0.5)]


def stepped(optimizer: Optimizer, state: Tensors, sent: Tensors) -> Tensors:
    mean = NameMean(state)
    mean.add(sent)
    return optimizer.step(state, mean)


def begun(optimizer: Optimizer, **weights: Tensor) -> Tensors:
    return {**weights, **optimizer.begin(weights)}


@pytest.mark.parametrize(
    ("optimizer", "after"),
    [
        (Momentum(lr=2.0, beta=0.5), [1 + 2 * 1, 3 + 2 * (0.5 * 1 + 1)]),
        (Momentum(lr=0.5, beta=0.0), [1.5, 2.0]),
        # v is 0.25 + 1, then 0.25 + 1 + 1
        (Adagrad(lr=1.0, tau=0.5), [1 + 1 / (math.sqrt(1.25) + 0.5), None]),
        # m is 0.1; v is 0.25 + 0.01, since 0.25 is less than 1
        (Yogi(lr=1.0, tau=0.5), [1 + 0.1 / (math.sqrt(0.26) + 0.5), None]),
        # v is 0.99 · 0.25 + 0.01
        (Adam(lr=1.0, tau=0.5), [1 + 0.1 / (math.sqrt(0.2575) + 0.5), None]),
    ],
)
def test_the_papers_rules_on_a_number(optimizer: Optimizer, after: list[float | None]) -> None:
    state = begun(optimizer, w=torch.tensor([1.0], dtype=torch.float64))
    for expected in after:
        state = stepped(optimizer, state, {"w": state["w"] + 1})
        if expected is not None:
            assert float(state["w"]) == pytest.approx(expected, abs=1e-12)


def test_yogi_lets_a_large_v_fall() -> None:
    optimizer = Yogi(lr=1.0, beta2=0.9, tau=2.0)
    state = stepped(optimizer, begun(optimizer, w=torch.zeros(1)), {"w": torch.ones(1)})
    assert float(state[moment("v", "w")]) == pytest.approx(4 - 0.1)


@pytest.mark.parametrize("optimizer", ALL, ids=lambda each: each.name)
def test_where_nobody_covers_a_scalar_it_and_its_moments_stay(optimizer: Optimizer) -> None:
    rng = torch.Generator().manual_seed(0)
    state = begun(optimizer, w=torch.randn(4, 3, generator=rng))
    everything = HolderMean(state)
    everything.add({"w": torch.randn(4, 3, generator=rng)})
    state = optimizer.step(state, everything)  # now all have moments
    mean = HolderMean(state)
    corner = Plan.of({"w": (Kept.of(4, [0, 2]), Kept.of(3, [0, 1]))})
    mean.add({"w": state["w"][[0, 2]][:, :2]}, plan=corner)  # where it is covered, it moves though Δ is 0
    new = optimizer.step(state, mean)
    held = torch.zeros(4, 3, dtype=torch.bool)
    held[[[0], [2]], [0, 1]] = True
    for name in state:
        if optimizer.name not in ("adagrad", "yogi"):  # without a Δ, their v stays, and Adagrad has no momentum
            assert (new[name] != state[name]).equal(held), name
        assert new[name][~held].equal(state[name][~held])


@pytest.mark.parametrize("optimizer", ALL, ids=lambda each: each.name)
def test_what_nobody_sends_stays(optimizer: Optimizer) -> None:
    state = begun(optimizer, a=torch.ones(3), b=torch.ones(2))
    state = stepped(optimizer, state, {"a": torch.zeros(3), "b": torch.zeros(2)})
    new = stepped(optimizer, state, {"a": torch.zeros(3)})
    assert not new["a"].equal(state["a"])
    for name in ("b", *(name for name in state if name.startswith(MOMENTS) and name.endswith("/b"))):
        assert new[name].equal(state[name])


def test_what_is_no_weight_is_averaged() -> None:
    optimizer = Adam(lr=0.5)
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net[0].bias.requires_grad_(False)
    assert set(weights_of(net)) == {"0.weight", "1.weight", "1.bias"}
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()} | optimizer.begin(weights_of(net))
    sent = {name: tensor + 2 for name, tensor in net.state_dict().items()}
    new = stepped(optimizer, state, sent)
    for name in ("0.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"):
        assert new[name].equal(sent[name])
    assert not new["0.weight"].equal(sent["0.weight"])


def test_a_weight_with_two_names_moves_under_both() -> None:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    assert set(weights_of(net)) == {"0.weight", "1.weight"}


def test_half_precision_keeps_its_type_and_has_moments_of_more() -> None:
    optimizer = Adam(lr=0.5)
    state = begun(optimizer, w=torch.ones(3, dtype=torch.float16))
    new = stepped(optimizer, state, {"w": torch.zeros(3, dtype=torch.float16)})
    assert new["w"].dtype == torch.float16
    assert new[moment("m", "w")].dtype == torch.float32
    assert {name: t.dtype for name, t in new.items()} == {name: t.dtype for name, t in state.items()}


def test_the_number_of_threads_does_not_show() -> None:
    optimizer = Adam(lr=0.5)
    rng = torch.Generator().manual_seed(0)
    state, sent = begun(optimizer, w=torch.randn(70001, generator=rng)), {"w": torch.randn(70001, generator=rng)}
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(stepped(optimizer, state, sent))
    finally:
        torch.set_num_threads(threads)
    assert all(found[0][name].equal(found[1][name]) for name in state)
