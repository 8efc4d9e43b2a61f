"""Which steps are timed for prices in seconds: as in training, at ranks far enough apart."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from potluck.parts.lowrank import prices
from potluck.parts.lowrank.prices import price_list
from potluck.parts.lowrank.survey import survey


def timed(monkeypatch: pytest.MonkeyPatch, net: nn.Module, size: int) -> list[tuple[nn.Module, list[Tensor]]]:
    """The modules whose steps are timed, with their inputs."""
    steps = []

    def note(module: nn.Module, calls: Sequence[Sequence[Tensor]]) -> float:
        steps.append((module, [tensor for inputs in calls for tensor in inputs]))
        return 1.0

    monkeypatch.setattr(prices, "seconds", note)
    example = [torch.zeros(1, size)]
    price_list("seconds", net, survey(net, example, (), start=0, factor=("0",)), example, 3)
    return steps


@pytest.mark.parametrize(("size", "ranks"), [(64, [4, 16]), (2, [1, 2])])
def test_factors_are_timed_at_half_and_an_eighth_of_the_size(
    monkeypatch: pytest.MonkeyPatch, size: int, ranks: list[int]
) -> None:
    """A layer of 64 x 64 is half as large at rank 16; the two ranks of the smallest layers still differ."""
    steps = timed(monkeypatch, nn.Sequential(nn.Linear(size, size)), size)
    factors = [module for module, _ in steps if hasattr(module, "first")]
    assert [module.get_submodule("first").out_features for module in factors] == ranks


def test_steps_are_those_of_training_with_gradients_for_what_enters_a_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout()).eval()
    *layers, (whole, inputs) = timed(monkeypatch, net, 8)
    assert all(tensor.requires_grad for _, given in layers for tensor in given)
    assert whole.training
    assert not net.training
    assert not any(tensor.requires_grad for tensor in inputs)


@pytest.mark.parametrize(("each", "steps"), [(0.001, 4), (0.02, 3), (10.0, 2)])
def test_two_steps_are_timed_and_up_to_four_while_they_are_short(
    monkeypatch: pytest.MonkeyPatch, each: float, steps: int
) -> None:
    """By a clock that goes on only in steps."""
    done: list[float] = []
    monkeypatch.setattr(prices, "step", lambda net, inputs: done.append(each))
    monkeypatch.setattr(prices.time, "thread_time", lambda: sum(done))
    assert prices.seconds(nn.Identity(), [[torch.zeros(1)]]) == pytest.approx(each)
    assert len(done) == steps


def test_a_network_may_also_put_out_what_has_no_gradient() -> None:
    class WithMask(nn.Linear):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return super().forward(x), x > 0

    prices.step(WithMask(3, 2), [torch.zeros(2, 3)])
