"""The faster operations for several clients at once do what PyTorch's own do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import vmap

from potluck.core.ways import stacked_operations
from potluck.core.ways.stacked_operations import StackedOperations

CLIENTS = 3


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def both_ways(operation: Callable[..., Tensor], *tensors: Tensor) -> None:
    """For all clients at once it gives what it gives for each alone, and so do the gradients."""

    def at_once(*own: Tensor) -> Tensor:
        with StackedOperations():
            return operation(*own)

    def each_alone(*all: Tensor) -> Tensor:
        return torch.stack([operation(*own) for own in zip(*all, strict=True)])

    found = []
    for run in (vmap(at_once), each_alone):
        leaves = [t.clone().requires_grad_(t.is_floating_point()) for t in tensors]
        result = run(*leaves)
        result.square().sum().backward()
        found.append([result.detach(), *(leaf.grad for leaf in leaves if leaf.requires_grad)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


@given(
    st.lists(st.integers(1, 4), max_size=3),
    st.integers(1, 5),
    st.integers(1, 5),
    st.booleans(),
)
def test_linear_layers_of_any_shape(before: list[int], inputs: int, outputs: int, bias: bool) -> None:
    tensors = [numbers(CLIENTS, *before, inputs), numbers(CLIENTS, outputs, inputs)]
    both_ways(F.linear, *tensors, *([numbers(CLIENTS, outputs)] if bias else []))


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 3, -100]), min_size=4, max_size=4), min_size=2, max_size=4))
def test_cross_entropy_leaves_out_what_pytorch_leaves_out(targets: list[list[int]]) -> None:
    both_ways(F.cross_entropy, numbers(len(targets), 4, 4), torch.tensor(targets))


def test_cross_entropy_of_logits_that_are_not_possible() -> None:
    logits = numbers(CLIENTS, 4, 5)
    logits[:, :, 0] = -torch.inf
    both_ways(F.cross_entropy, logits, torch.tensor([[1, 2, -100, 4]] * CLIENTS))


@pytest.mark.parametrize(
    "settings",
    [
        {"reduction": "sum"},
        {"label_smoothing": 0.1},
        {"ignore_index": 2},
        {"weight": torch.arange(1.0, 6.0, dtype=torch.float64)},
    ],
)
def test_other_kinds_of_cross_entropy_are_left_to_pytorch(settings: dict[str, Any]) -> None:
    both_ways(
        lambda logits, targets: F.cross_entropy(logits, targets, **settings),
        numbers(CLIENTS, 4, 5),
        torch.tensor([[1, 2, 3, 4]] * CLIENTS),
    )


def test_cross_entropy_with_places_between_or_with_probabilities_is_left_to_pytorch() -> None:
    both_ways(F.cross_entropy, numbers(CLIENTS, 4, 5, 2), torch.tensor([[[1, 2]] * 4] * CLIENTS))
    both_ways(F.cross_entropy, numbers(CLIENTS, 4, 5), numbers(CLIENTS, 4, 5).softmax(2))


def test_gradients_of_weights_come_out_as_the_weights_lie() -> None:
    """Else PyTorch would copy every one of them."""
    weight = numbers(CLIENTS, 4, 5).requires_grad_()
    seen: list[tuple[int, ...]] = []
    weight.register_hook(lambda gradient: seen.append(gradient.stride()))

    def one(inputs: Tensor, weight: Tensor) -> Tensor:
        with StackedOperations():
            return F.linear(inputs, weight).sum()

    vmap(one)(numbers(CLIENTS, 6, 5), weight).sum().backward()
    assert seen == [weight.stride()]


def test_modules_and_losses_are_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("linear", "cross_entropy"):
        real = getattr(stacked_operations, name)
        monkeypatch.setattr(
            stacked_operations, name, lambda *all, name=name, real=real: (calls.append(name), real(*all))[1]
        )
    with StackedOperations():
        nn.CrossEntropyLoss()(nn.Linear(3, 2)(torch.zeros(4, 3)), torch.zeros(4, dtype=torch.long))
    assert calls == ["linear", "cross_entropy"]
