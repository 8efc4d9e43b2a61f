"""Steps taken in the backward pass: where they are, training ends where it would without; elsewhere nothing happens."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from potluck.core.fit import fit
from potluck.core.goals.classes import Classes
from potluck.core.types import Batch, Loss, Phase, Tensors, Train
from potluck.core.ways.swift import Swift
from potluck.core.ways.way import Way

CLASSES = Classes()
PLAIN = Train(lr=0.1, momentum=0.0, weight_decay=0.0, clip=0.0)
EXAMPLES = 20  # as many as are multiplied with the weights on the left


def made_up_batches(count: int, width: int = 6, seed: int = 0) -> list[Batch]:
    rng = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(EXAMPLES, width, generator=rng), torch.randint(3, (EXAMPLES,), generator=rng))
        for _ in range(count)
    ]


def trained(net: nn.Module, way: str, loss: Loss = CLASSES, train: Train = PLAIN) -> list[Tensor]:
    """The parameters of a copy of a network after three steps."""
    net = deepcopy(net)
    fit(net, Way.called(way).phase(Phase(loss), train), made_up_batches(3), train)
    return [parameter.detach() for parameter in net.parameters()]


def agree(net: nn.Module, loss: Loss = CLASSES, train: Train = PLAIN) -> bool:
    before = [parameter.detach() for parameter in net.parameters()]
    expected, found = trained(net, "plain", loss, train), trained(net, "swift", loss, train)
    assert any(not torch.equal(one, other) for one, other in zip(expected, before, strict=True))  # something was learnt
    return all(torch.allclose(one, other, atol=1e-6) for one, other in zip(found, expected, strict=True))


def descended(weight: nn.Parameter, loss: Callable[[], Tensor], rate: float | None = 0.5) -> bool:
    """Whether a backward pass moved a weight itself, and left no gradient behind."""
    before = weight.detach().clone()
    with Swift(rate):
        value = loss()
    value.backward()
    moved = not torch.equal(before, weight)
    assert moved == (weight.grad is None)
    return moved


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def test_the_backward_pass_takes_the_step() -> None:
    layer, inputs = nn.Linear(6, 3), torch.randn(EXAMPLES, 6)
    before = layer.weight.detach().clone()
    assert descended(layer.weight, lambda: layer(inputs).sum(), rate=0.5)
    assert torch.allclose(layer.weight, before - 0.5 * inputs.sum(0).expand(3, 6), atol=1e-5)
    assert layer.bias.grad is not None
    assert not descended(layer.weight, lambda: layer(inputs).sum(), rate=None)


@given(st.integers(1, 70), st.integers(1, 9), st.floats(1e-3, 1))
def test_training_ends_where_it_does_plainly(examples: int, hidden: int, lr: float) -> None:
    settings = replace(PLAIN, lr=lr)
    torch.manual_seed(examples)
    nets = [nn.Sequential(nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, 3))]
    nets.append(deepcopy(nets[0]))
    rng = torch.Generator().manual_seed(hidden)
    batch = torch.randn(examples, 6, generator=rng), torch.randint(3, (examples,), generator=rng)
    for net, name in zip(nets, ("plain", "swift"), strict=True):
        fit(net, Way.called(name).phase(Phase(Classes()), settings), [batch] * 2, settings)
    for one, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(
    "train",
    [
        PLAIN,
        replace(PLAIN, momentum=0.9),
        replace(PLAIN, weight_decay=0.1),
        replace(PLAIN, clip=0.1),
        replace(PLAIN, optimizer="adam"),
    ],
)
def test_every_optimiser_gets_what_it_needs(train: Train) -> None:
    assert agree(two_layers(), train=train)
    if train.optimizer == "sgd":  # Adam's steps do not depend on the size of a gradient
        other = trained(two_layers(), "plain")
        assert train is PLAIN or not all(map(torch.allclose, other, trained(two_layers(), "plain", train=train)))


class Tied(nn.Module):
    """One layer, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.head(self.layer(self.layer(inputs).relu()))
        return found


def penalised(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """A loss that looks at the weights themselves, before and after the network does."""
    first = net[0].weight  # type: ignore[index]
    return first.square().sum() + Classes()(net, batch, extra) + 0.1 * (first @ first.t()).sum()


def twice(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """A network that is asked twice for one step."""
    return Classes()(net, batch, extra) + F.mse_loss(net(batch[0] + 1), net(batch[0]).detach())


def test_a_weight_that_others_use_as_well_is_left_to_the_optimiser() -> None:
    torch.manual_seed(0)
    assert agree(Tied())
    assert agree(two_layers(), penalised)
    assert agree(two_layers(), twice)
    layer, inputs = nn.Linear(6, 6), torch.randn(EXAMPLES, 6)
    assert not descended(layer.weight, lambda: layer(layer(inputs)).sum())
    layer.weight.grad = None
    assert not descended(layer.weight, lambda: layer(inputs).sum() + F.normalize(input=layer.weight).sum())
    layer.weight.grad = None
    assert not descended(layer.weight, lambda: layer(torch.linalg.multi_dot([inputs, layer.weight])).sum())


def test_only_parameters_that_are_trained_move() -> None:
    net = two_layers()
    net[0].weight.requires_grad_(False)
    still = net[0].weight.detach().clone()
    assert agree(net)
    assert torch.equal(trained(net, "swift")[0], still)
    given = torch.randn(3, 6, requires_grad=True)  # no parameter: nobody said that it is to be trained
    with Swift(0.5):
        F.linear(torch.randn(EXAMPLES, 6), given, torch.zeros(3)).sum().backward()
    assert given.grad is not None


def test_a_step_may_be_taken_in_the_backward_pass_alone() -> None:
    torch.manual_seed(0)
    net = nn.Linear(6, 3)
    net.bias.requires_grad_(False)
    assert agree(net)


def test_whoever_waits_for_a_gradient_gets_it() -> None:
    layer, inputs = nn.Linear(6, 3), torch.randn(EXAMPLES, 6)
    handle = layer.weight.register_hook(lambda gradient: gradient * 0)
    assert not descended(layer.weight, lambda: layer(inputs).sum())
    assert not layer.weight.grad.any()  # type: ignore[union-attr]
    handle.remove()
    handle = layer.weight.register_post_accumulate_grad_hook(lambda weight: None)
    assert not descended(layer.weight, lambda: layer(inputs).sum())
    handle.remove()
    layer.weight.grad = None
    assert descended(layer.weight, lambda: layer(inputs).sum())


def test_weights_that_are_computed_get_their_gradients() -> None:
    torch.manual_seed(0)
    assert agree(nn.Sequential(weight_norm(nn.Linear(6, 5)), nn.ReLU(), nn.Linear(5, 3)))


class Squared(torch.autograd.Function):
    """An operation of a user's own."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return weight.square()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (weight,) = ctx.saved_tensors
        found: Tensor = 2 * weight * gradient
        return found


def test_an_operation_of_a_users_own_counts_as_well() -> None:
    layer, inputs = nn.Linear(6, 6), torch.randn(EXAMPLES, 6)
    assert not descended(layer.weight, lambda: layer(inputs @ Squared.apply(layer.weight)).sum())  # type: ignore[no-untyped-call]
