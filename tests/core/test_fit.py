"""The one training loop: rates, groups, clipping, freezing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from potluck.core.fit import fit, in_round, learning_rate, optimizer_of
from potluck.core.types import Batch, Phase, Tensors, Train, everything

PLAIN = Train(lr=1.0, momentum=0.0, weight_decay=0.0, clip=0.0)


def summed(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """A loss whose gradient by each weight is its input."""
    return net(batch[0]).sum()


def linear(values: list[float]) -> nn.Linear:
    net = nn.Linear(len(values), 1, bias=False)
    net.weight.data.copy_(torch.tensor([values]))
    return net


def batch(*inputs: float) -> Batch:
    return torch.tensor([inputs]), torch.tensor([0])


@pytest.mark.parametrize(("round", "rate"), [(0, 0.1), (2, 0.1), (3, 0.01), (4, 0.01), (5, 0.001), (100, 0.001)])
def test_multistep_multiplies_at_every_milestone(round: int, rate: float) -> None:
    train = Train(lr=0.1, schedule="multistep", milestones=(3, 5), decay=0.1)
    assert learning_rate(train, round, rounds=200) == pytest.approx(rate)


@pytest.mark.parametrize(("round", "rate"), [(0, 0.4), (1, 0.2 * (1 + math.sqrt(0.5))), (2, 0.2), (4, 0.0)])
def test_cosine_falls_by_half_a_wave(round: int, rate: float) -> None:
    assert learning_rate(Train(lr=0.4, schedule="cosine"), round, rounds=4) == pytest.approx(rate)


@pytest.mark.parametrize(("round", "rate"), [(0, 0.4), (1, 0.3), (3, 0.1), (4, 0.0)])
def test_linear_falls_in_equal_steps(round: int, rate: float) -> None:
    assert learning_rate(Train(lr=0.4, schedule="linear"), round, rounds=4) == pytest.approx(rate)


@pytest.mark.parametrize(("round", "rate"), [(0, 0.4), (1, 0.2), (3, 0.05)])
def test_exponential_multiplies_in_every_round(round: int, rate: float) -> None:
    assert learning_rate(Train(lr=0.4, schedule="exponential", decay=0.5), round, rounds=4) == pytest.approx(rate)


def test_factors_are_those_of_a_list_or_a_function() -> None:
    listed = [learning_rate(Train(lr=0.5, schedule=(1.0, 0.5, 0.25)), round, 5) for round in range(5)]
    assert listed == [0.5, 0.25, 0.125, 0.125, 0.125]  # after the last one it stays
    assert [learning_rate(Train(lr=0.5, schedule=lambda round: 2.0**-round), round, 5) for round in range(3)] == [
        0.5,
        0.25,
        0.125,
    ]


SCHEDULES = ("constant", "multistep", "cosine", "linear", "exponential")


@given(st.sampled_from(SCHEDULES), st.integers(0, 6), st.integers(1, 12))
def test_a_warm_up_rises_to_the_rate_and_falling_begins_after_it(schedule: Any, warmup: int, rounds: int) -> None:
    train = Train(lr=0.4, schedule=schedule, warmup=warmup, milestones=(100,), decay=0.5)
    rates = [learning_rate(train, round, warmup + rounds) for round in range(warmup + rounds)]
    assert rates[:warmup] == pytest.approx([0.4 * (round + 1) / (warmup + 1) for round in range(warmup)])
    bare = replace(train, warmup=0)
    assert rates[warmup:] == [learning_rate(bare, round, rounds) for round in range(rounds)]
    assert min(rates) > 0


def test_schedules_that_name_rounds_count_those_of_a_warm_up() -> None:
    stepped = Train(lr=1.0, schedule="multistep", milestones=(1, 3), decay=0.5, warmup=1)
    assert [learning_rate(stepped, round, 4) for round in range(4)] == [0.5, 0.5, 0.5, 0.25]
    assert [learning_rate(Train(lr=1.0, schedule=(1.0, 0.5), warmup=3), round, 4) for round in range(4)] == [
        0.25,
        0.25,
        0.375,
        0.5,
    ]


def test_a_warm_up_may_be_longer_than_the_run() -> None:
    for schedule in SCHEDULES:
        train = Train(lr=1.0, schedule=schedule, warmup=9)  # type: ignore[arg-type]
        assert learning_rate(train, 2, rounds=3) == pytest.approx(0.3)


def test_a_constant_rate_knows_no_milestones() -> None:
    train = Train(lr=0.3, schedule="constant", milestones=(1,))
    assert [learning_rate(train, round, 5) for round in range(5)] == [0.3] * 5


def test_the_settings_of_a_round_differ_in_the_rate_alone() -> None:
    train = Train(lr=0.4, schedule="cosine", epochs=7)
    assert in_round(train, 2, rounds=4) == replace(train, lr=pytest.approx(0.2))
    assert in_round(train, 0, rounds=4) == train
    constant = Train(lr=0.3)
    assert in_round(constant, 5, rounds=9) is constant


def test_sgd_steps_by_rate_times_gradient() -> None:
    net = linear([1.0, 2.0])
    fit(net, Phase(summed), [batch(3.0, 4.0)], replace(PLAIN, lr=0.5))
    assert net.weight.tolist() == [[1 - 0.5 * 3, 2 - 0.5 * 4]]


def test_momentum_carries_over_steps_of_one_call_only() -> None:
    train = Train(lr=1.0, momentum=0.5, weight_decay=0.0, clip=0.0)
    net = linear([0.0])
    fit(net, Phase(summed), [batch(1.0), batch(1.0)], train)
    assert net.weight.item() == -(1 + 1.5)
    fit(net, Phase(summed), [batch(1.0)], train)
    assert net.weight.item() == -(1 + 1.5) - 1  # a fresh optimiser: no velocity from before


def test_gradients_do_not_pile_up_over_batches() -> None:
    net = linear([0.0])
    fit(net, Phase(summed), [batch(1.0), batch(10.0)], PLAIN)
    assert net.weight.item() == -11.0


def test_weight_decay_spares_what_the_phase_says() -> None:
    net = nn.Linear(1, 1)
    nn.init.ones_(net.weight)
    nn.init.ones_(net.bias)
    train = Train(lr=0.5, momentum=0.0, weight_decay=0.25, clip=0.0)
    still = torch.zeros(1, 1), torch.tensor([0])

    def no_gradient(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
        return 0 * net(batch[0]).sum()

    fit(net, Phase(no_gradient, decays=lambda name: name == "weight"), [still], train)
    assert net.weight.item() == 1 - 0.5 * 0.25
    assert net.bias.item() == 1


def test_what_decays_and_what_does_not_are_two_groups() -> None:
    net = nn.Linear(2, 1)
    train = Train(lr=0.3, weight_decay=0.1, momentum=0.7)
    optimizer = optimizer_of(net.named_parameters(), lambda name: name == "weight", train)
    assert isinstance(optimizer, torch.optim.Optimizer)
    groups = optimizer.param_groups
    assert [(group["weight_decay"], len(group["params"])) for group in groups] == [(0.1, 1), (0.0, 1)]
    assert groups[0]["params"][0] is net.weight
    assert {(group["lr"], group["momentum"]) for group in groups} == {(0.3, 0.7)}
    alike = optimizer_of(net.named_parameters(), everything, train)
    assert isinstance(alike, torch.optim.Optimizer)
    assert len(alike.param_groups) == 1


def test_adam_steps_by_its_rate_whatever_the_gradient() -> None:
    net = linear([0.0])
    fit(net, Phase(summed), [batch(1000.0)], Train(optimizer="adam", lr=0.25, weight_decay=0.0, clip=0.0))
    assert net.weight.item() == pytest.approx(-0.25)


class Late(nn.Module):
    """Uses its second layer from the second batch on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.seen = linear([1.0]), linear([1.0]), 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen += 1
        found: Tensor = self.first(inputs)
        return found if self.seen == 1 else found + self.second(inputs)


@pytest.mark.parametrize(
    ("train", "first", "second"),
    [
        (Train(lr=0.5, momentum=0.0, weight_decay=0.0, clip=0.0), 1 - 0.5 * 3, 1 - 0.5 * 2),
        (Train(lr=0.5, momentum=0.5, weight_decay=0.0, clip=0.0), 1 - 0.5 * (1 + 1.5 + 1.75), 1 - 0.5 * (1 + 1.5)),
        (Train(optimizer="adam", lr=0.5, weight_decay=0.0, clip=0.0), 1 - 0.5 * 3, 1 - 0.5 * 2),
    ],
)
def test_a_parameter_may_have_its_first_gradient_later_than_others(train: Train, first: float, second: float) -> None:
    net = Late()
    fit(net, Phase(summed), [batch(1.0)] * 3, train)
    assert net.first.weight.item() == pytest.approx(first, abs=1e-6)
    assert net.second.weight.item() == pytest.approx(second, abs=1e-6)


@pytest.mark.parametrize(
    "train",
    [replace(PLAIN, lr=0.1), Train(lr=0.1, momentum=0.9, weight_decay=0.1), Train("adam", 0.1, weight_decay=0.1)],
)
def test_single_operations_for_all_parameters_give_what_one_after_the_other_gives(train: Train) -> None:
    kind = torch.optim.Adam if train.optimizer == "adam" else torch.optim.SGD
    options = {} if train.optimizer == "adam" else {"momentum": train.momentum}
    nets = [nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).double() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    ours = optimizer_of(nets[0].named_parameters(), everything, train)
    theirs = kind(nets[1].parameters(), lr=0.1, weight_decay=train.weight_decay, foreach=False, **options)  # type: ignore[arg-type]
    for number in range(3):
        for net, optimizer in zip(nets, (ours, theirs), strict=True):
            optimizer.zero_grad()
            net(torch.full((2, 3), 1.0 + number, dtype=torch.float64)).square().sum().backward()
            optimizer.step()
    for one, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=0)


@given(st.floats(1e-6, 10), st.integers(0, 1000))
def test_plain_descent_has_the_bits_of_pytorchs(lr: float, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    values = [torch.randn(shape, generator=rng) for shape in ((7, 5), (33,), ())]
    ours, theirs = ([value.clone().requires_grad_() for value in values] for _ in range(2))
    for one, other in zip(ours[:2], theirs[:2], strict=True):  # the last has no gradient
        one.grad = torch.randn(one.shape, generator=rng)
        other.grad = one.grad.clone()
    named = [(str(number), one) for number, one in enumerate(ours)]
    optimizer = optimizer_of(named, everything, replace(PLAIN, lr=lr))
    optimizer.step()
    torch.optim.SGD(theirs, lr=lr, foreach=False).step()
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    optimizer.zero_grad()
    assert all(one.grad is None for one in ours)


@given(st.lists(st.floats(-100, 100, width=32), min_size=4, max_size=4), st.floats(0.1, 5))
def test_clipping_bounds_the_step_over_all_parameters_together(inputs: list[float], clip: float) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    before = [p.detach().clone() for p in net.parameters()]
    train = Train(lr=1.0, momentum=0.0, weight_decay=0.0, clip=clip)
    fit(net, Phase(summed), [batch(*inputs)], train)
    moved = torch.cat([(p.detach() - b).flatten() for p, b in zip(net.parameters(), before, strict=True)])
    assert moved.norm() <= clip * (1 + 1e-4)


def test_clipping_keeps_the_direction_and_small_gradients() -> None:
    net = linear([0.0, 0.0])
    fit(net, Phase(summed), [batch(30.0, 40.0)], Train(lr=1.0, momentum=0.0, weight_decay=0.0, clip=5.0))
    assert net.weight[0].tolist() == pytest.approx([-3.0, -4.0], rel=1e-5)
    fit(net, Phase(summed), [batch(0.3, 0.4)], Train(lr=1.0, momentum=0.0, weight_decay=0.0, clip=5.0))
    assert net.weight[0].tolist() == pytest.approx([-3.3, -4.4], rel=1e-5)


def test_what_a_phase_does_not_train_stays_and_has_no_part_in_clipping() -> None:
    net = nn.Sequential(linear([1.0]), linear([1.0]))
    train = Train(lr=1.0, momentum=0.0, weight_decay=0.1, clip=1.0)
    fit(net, Phase(summed, trains=lambda name: name == "1.weight"), [batch(0.5)], train)
    assert net[0].weight.item() == 1.0
    assert net[1].weight.item() == pytest.approx(1 - 0.5 - 0.1)  # the decay is added after clipping


def test_a_later_phase_trains_what_an_earlier_one_froze() -> None:
    net = nn.Sequential(linear([1.0]), linear([1.0]))
    fit(net, Phase(summed, trains=lambda name: name == "1.weight"), [batch(1.0)], replace(PLAIN, lr=0.25))
    fit(net, Phase(summed), [batch(1.0)], replace(PLAIN, lr=0.25))
    assert net[0].weight.item() == 1 - 0.25 * 0.75
    assert net[1].weight.item() == 1 - 0.25 - 0.25


def test_what_the_author_of_a_network_froze_stays_frozen() -> None:
    net = nn.Sequential(linear([1.0]), linear([1.0]))
    net[0].weight.requires_grad_(False)
    for _ in range(2):  # networks are kept and trained again in the next round
        fit(net, Phase(summed), [batch(1.0)], replace(PLAIN, lr=0.25))
    assert net[0].weight.item() == 1.0
    assert net[1].weight.item() == 0.5


def test_training_is_in_training_mode_and_reads_the_extra_tensors() -> None:
    seen: list[tuple[bool, float]] = []

    def loss(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
        seen.append((net.training, extra["anchor"].item()))
        return summed(net, batch, extra)

    net = linear([0.0]).eval()
    fit(net, Phase(loss, {"anchor": torch.tensor(2.5)}), [batch(1.0)] * 2, PLAIN)
    assert seen == [(True, 2.5)] * 2
