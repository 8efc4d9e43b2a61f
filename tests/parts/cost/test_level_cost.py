"""What a level costs: counted against formulas, measured against what must be there."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from potluck.core.method import Method
from potluck.core.networks import ByWidth
from potluck.core.tensors import size_in_bytes, state_of
from potluck.core.types import Client, Context, Job, Level, Task, Tensors, Train
from potluck.methods.heterofl import HeteroFL
from potluck.parts.cost.level import (
    count_macs,
    count_parameters,
    count_trained,
    example_batch,
    level_cost,
    measure_step,
)

WIDE, NARROW = Level("wide", 1.0), Level("narrow", 0.125)


def mlp(width: float) -> nn.Module:
    hidden = int(512 * width)
    return nn.Sequential(nn.Linear(20, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 4))


def context(batch_size: int = 8) -> Context:
    example = (torch.zeros(1, 20), torch.zeros(1, dtype=torch.long))
    heads = dict.fromkeys((WIDE.name, NARROW.name), ("4.weight", "4.bias"))
    return Context(Task(ByWidth(mlp), (WIDE, NARROW), 4, heads, example, Train(batch_size=batch_size)), 0, 0)


def mlp_parameters(hidden: int) -> int:
    return 20 * hidden + hidden + hidden * hidden + hidden + 4 * hidden + 4


def peak(method: Method, level: Level, batch_size: int = 8) -> int:
    ctx = context(batch_size)
    return measure_step(method, method.init(ctx), level, ctx).peak_training_memory


def test_parameters_are_counted_once_and_buffers_are_not() -> None:
    shared = nn.Linear(3, 3)
    assert count_parameters(nn.Sequential(shared, shared, nn.BatchNorm1d(3))) == 12 + 6


def test_frozen_weights_are_parameters_that_are_not_trained() -> None:
    net = nn.Sequential(nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 2))
    assert (count_parameters(net), count_trained(net)) == (12 + 8, 8)


def test_a_level_with_a_frozen_body_trains_only_its_head() -> None:
    def frozen_body(width: float) -> nn.Module:
        net = mlp(width)
        for layer in (net[0], net[2]):
            layer.requires_grad_(False)
        return net

    ctx, method = context(), HeteroFL()
    ctx = replace(ctx, task=replace(ctx.task, model=ByWidth(frozen_body)))
    cost = level_cost(method, method.init(ctx), NARROW, ctx)
    assert (cost.parameters, cost.trained) == (mlp_parameters(64), 4 * 64 + 4)
    assert cost.space == 4 * cost.parameters / 2**20


@pytest.mark.parametrize(
    ("net", "example", "macs"),
    [
        (nn.Linear(5, 7), torch.zeros(1, 5), 35),
        (nn.Linear(5, 7), torch.zeros(1, 9, 5), 9 * 35),
        (nn.Conv2d(3, 8, 3, padding=1), torch.zeros(1, 3, 6, 6), 9 * 3 * 8 * 36),
        (nn.Conv2d(3, 8, 3, stride=2), torch.zeros(1, 3, 7, 7), 9 * 3 * 8 * 9),
        (nn.Sequential(nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 7)), torch.zeros(1, 5), 35),
        (nn.Sequential(nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 7)), torch.zeros(1, 5), 35),
        (nn.Sequential(nn.Embedding(9, 5), nn.Linear(5, 7)), torch.zeros(1, 4, dtype=torch.long), 4 * 35),
    ],
)
def test_multiply_accumulates_of_one_example(net: nn.Module, example: Tensor, macs: int) -> None:
    assert count_macs(net.train(), example) == macs
    assert net.training


def test_a_network_that_looks_at_values_is_counted_too() -> None:
    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 7)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.layer(inputs) if inputs.sum().item() == 0 else inputs

    assert count_macs(Looking(), torch.zeros(1, 5)) == 35


class Places(nn.Module):
    """Gives its parameter away, as it is or a part of it."""

    def __init__(self, part: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 5))
        self.part = part

    def forward(self, inputs: Tensor) -> Tensor:
        return self.weight[: inputs.shape[1]].unsqueeze(0) if self.part else self.weight


class Placed(nn.Module):
    def __init__(self, part: bool) -> None:
        super().__init__()
        self.places, self.layer = Places(part), nn.Linear(5, 7)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs + self.places(inputs))


@pytest.mark.parametrize("part", [True, False], ids=["a view", "all of it"])
def test_a_module_that_gives_its_parameter_away_is_counted_too(part: bool) -> None:
    assert count_macs(Placed(part), torch.zeros(1, 6, 5)) == 6 * 35


def test_counting_leaves_statistics_alone() -> None:
    net = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 7)).train()
    count_macs(net, torch.ones(1, 5))
    assert net[0].num_batches_tracked.item() == 0


@pytest.mark.parametrize(("level", "hidden"), [(WIDE, 512), (NARROW, 64)])
def test_a_levels_cost_by_formula(level: Level, hidden: int) -> None:
    ctx, method = context(), HeteroFL()
    cost = level_cost(method, method.init(ctx), level, ctx)
    assert (cost.level, cost.ratio) == (level.name, level.ratio)
    assert cost.parameters == cost.trained == mlp_parameters(hidden)
    assert cost.macs == 20 * hidden + hidden * hidden + 4 * hidden
    assert cost.bytes_down == cost.bytes_up == 4 * mlp_parameters(hidden)


def test_bytes_up_and_down_are_what_the_method_sends() -> None:
    class Silent(Method):
        def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
            return {"4.bias": state_of(net)["4.bias"]}, {}

    ctx = context()
    cost = level_cost(Silent(), Silent().init(ctx), WIDE, ctx)
    assert cost.bytes_down == size_in_bytes(Silent().init(ctx))
    assert cost.bytes_up == 16


@pytest.mark.parametrize("level", [WIDE, NARROW])
def test_training_holds_weights_gradients_and_momentum(level: Level) -> None:
    hidden = int(512 * level.ratio)
    assert peak(HeteroFL(), level) >= 3 * 4 * mlp_parameters(hidden)


def test_training_memory_grows_with_width_and_batch_size() -> None:
    method = HeteroFL(scaler=False)
    assert peak(method, NARROW) * 4 < peak(method, WIDE)
    assert peak(method, NARROW, batch_size=512) > peak(method, NARROW, batch_size=8) + 500 * 64 * 4


def test_without_momentum_there_is_less_to_hold() -> None:
    ctx, method = context(), HeteroFL()
    plain = replace(ctx, task=replace(ctx.task, train=Train(momentum=0.0, batch_size=8)))
    state = method.init(ctx)
    with_momentum, without = (measure_step(method, state, WIDE, at).peak_training_memory for at in (ctx, plain))
    assert without < with_momentum


@pytest.mark.parametrize("scaler", [True, False])
def test_a_narrow_level_does_not_need_the_memory_of_the_wide_network(scaler: bool) -> None:
    assert peak(HeteroFL(scaler=scaler), NARROW) < 4 * mlp_parameters(512)


def test_an_example_batch_has_the_shape_of_training() -> None:
    inputs, targets = example_batch(context(batch_size=6))
    assert inputs.shape == (6, 20)
    assert targets.shape == (6,)
    assert inputs.is_contiguous()


def test_measuring_changes_neither_state_nor_later_clients() -> None:
    ctx, method = context(), HeteroFL()
    state = method.init(ctx)
    before = {name: tensor.clone() for name, tensor in state.items()}
    measure_step(method, state, NARROW, ctx)
    assert all(torch.equal(state[name], before[name]) for name in state)
    client = Client(0, NARROW, 8, (0, 1, 2, 3))
    net = method.localize(Job(client, 0, method.distribute(state, client, ctx)), ctx, {})
    assert torch.equal(net.state_dict()["0.weight"], state["0.weight"][:64])
