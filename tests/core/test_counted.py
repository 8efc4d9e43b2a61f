"""The rule by which a way to train is chosen: what can be counted, and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from potluck.core.ways.counted import (
    LAID_OUT_MACS,
    STACKED_MACS,
    STACKED_SCALARS,
    Load,
    convolution_macs,
    stack_for,
    ways_for,
)
from potluck.models.catalogue import find_model, input_for
from potluck.parts.cost.level import count_macs


def linear(width: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(48, width), nn.ReLU(), nn.Linear(width, 10))


def ways(net: nn.Module, shape: tuple[int, ...], batch: int, macs: int, together: int = 25) -> list[str]:
    return ways_for(net, torch.zeros(1, *shape), Load(batch, macs, together))


@pytest.mark.parametrize(
    ("name", "width", "batch", "expected"),
    [
        ("heterofl-cnn", 1.0, 10, "channels-last"),
        ("heterofl-cnn", 0.25, 10, "plain"),
        ("heterofl-cnn", 0.0625, 10, "stacked-25"),
        ("flanc-cnn", 0.25, 32, "channels-last"),
        ("resnet18", 0.35, 32, "channels-last"),
        ("preresnet18", 0.25, 10, "channels-last"),
        ("preresnet18", 0.0625, 10, "plain"),
        ("lg-cnn", 1.0, 10, "plain"),
        ("lg-cnn", 0.5, 10, "stacked-25"),
        ("lg-mlp", 1.0, 32, "plain"),
        ("lg-mlp", 0.1, 10, "stacked-25"),
    ],
)
def test_networks_of_the_papers(name: str, width: float, batch: int, expected: str) -> None:
    net, shape = find_model(name)(width), input_for(name)
    found = ways(net, shape, batch, count_macs(net, torch.zeros(1, *shape)))
    assert found[0] == expected
    assert found[-1] == "plain"


def test_networks_of_simulators() -> None:
    regression = nn.Sequential(nn.Linear(784, 10))
    assert ways(regression, (784,), 10, macs=7840) == ["stacked-25", "plain"]
    cnn = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(50176, 10)
    )
    assert ways(cnn, (3, 32, 32), 10, macs=count_macs(cnn, torch.zeros(1, 3, 32, 32))) == ["channels-last", "plain"]


IMAGE = (3, 4, 4)


@pytest.mark.parametrize(
    ("batch", "found"), [(LAID_OUT_MACS // 432, "plain"), (LAID_OUT_MACS // 432 + 1, "channels-last")]
)
def test_the_layout_follows_from_the_work_of_convolutions_in_a_batch(batch: int, found: str) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 10))
    assert ways(net, IMAGE, batch, 592) == ([found] if found == "plain" else [found, "plain"])


def test_a_stem_is_no_reason_for_another_layout() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 500), nn.Linear(500, 10))
    own = convolution_macs(net, torch.zeros(1, *IMAGE))
    assert own == 2 * 2 * 4 * 3 * 9
    assert ways(net, IMAGE, LAID_OUT_MACS, 2 * own)[0] == "channels-last"
    assert ways(net, IMAGE, LAID_OUT_MACS, 2 * own + 1)[0] == "plain"


def test_multiply_adds_of_convolutions_in_groups_and_of_those_used_twice() -> None:
    layer = nn.Conv2d(4, 4, 3, padding=1, groups=2)
    net = nn.Sequential(nn.Conv2d(3, 4, 1), layer, layer)
    assert convolution_macs(net, torch.zeros(1, *IMAGE)) == 16 * 4 * 3 + 2 * 16 * 4 * 2 * 9


@pytest.mark.parametrize(
    ("scalars", "macs", "together", "stack"),
    [
        (100, 1000, 25, 25),
        (100, 1000, 1, 1),
        (100, 1000, 100, 32),
        (STACKED_SCALARS, 1000, 25, 25),
        (STACKED_SCALARS + 1, 1000, 25, 1),
        (100, STACKED_MACS // 10, 25, 25),
        (100, STACKED_MACS // 10 + 1, 25, 1),
    ],
)
def test_only_small_networks_are_stacked(scalars: int, macs: int, together: int, stack: int) -> None:
    net = nn.ParameterList([torch.empty(scalars, device="meta")])
    assert stack_for(net, Load(10, macs, together)) == stack


def test_nothing_of_it_depends_on_weights_or_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter", lambda: pytest.fail("a clock was looked at"))
    torch.manual_seed(0)
    first = ways(linear(16), IMAGE, 10, 600)
    torch.manual_seed(1)
    assert ways(linear(16), IMAGE, 10, 600) == first
