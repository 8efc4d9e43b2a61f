"""The norm of a product of factors and its gradients, against the product formed explicitly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from potluck.core.random import stream
from potluck.parts.lowrank.frobenius import frobenius_penalty, half_squared_norm
from potluck.parts.lowrank.layers import Unrolled, replace_layers


def random(*shape: int, key: object = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=stream(0, shape, key)).requires_grad_()


def factors(stack: list[int], rows: int, rank: int, columns: int) -> tuple[Tensor, Tensor]:
    return random(*stack, rows, rank, key="left"), random(*stack, rank, columns, key="right")


def formed(left: Tensor, right: Tensor) -> Tensor:
    return 0.5 * (left @ right).square().sum()


SIZES = st.integers(1, 7)
STACKS = st.lists(st.integers(1, 3), max_size=2)


@given(STACKS, SIZES, SIZES, SIZES)
def test_value_and_gradients_are_those_of_the_product(stack: list[int], rows: int, rank: int, columns: int) -> None:
    left, right = factors(stack, rows, rank, columns)
    ours, theirs = half_squared_norm(left, right), formed(left, right)
    assert ours.shape == ()
    assert float((ours - theirs).detach().abs()) < 1e-10 * max(1.0, float(theirs.detach()))
    found, expected = (torch.autograd.grad(3 * each, [left, right]) for each in (ours, theirs))
    for one, two in zip(found, expected, strict=True):
        assert (one - two).abs().max() < 1e-10 * max(1.0, float(two.abs().max()))


@pytest.mark.parametrize("stack", [[], [3]])
def test_gradients_against_differences(stack: list[int]) -> None:
    assert torch.autograd.gradcheck(half_squared_norm, factors(stack, 4, 2, 5))


def test_by_hand() -> None:
    """A = (1, 2)ᵀ, B = (3, 4): ‖A‖² ‖B‖² / 2 = 5 · 25 / 2; gradients 25 A and 5 B."""
    left, right = (torch.tensor(each, requires_grad=True) for each in ([[1.0], [2.0]], [[3.0, 4.0]]))
    norm = half_squared_norm(left, right)
    norm.backward()
    assert norm.item() == 62.5
    assert left.grad is not None
    assert right.grad is not None
    assert left.grad.tolist() == [[25.0], [50.0]]
    assert right.grad.tolist() == [[15.0, 20.0]]


@pytest.mark.parametrize("trained", [0, 1])
def test_one_factor_may_be_fixed(trained: int) -> None:
    pair = [tensor.detach() for tensor in factors([], 4, 2, 5)]
    pair[trained].requires_grad_()
    (found,) = torch.autograd.grad(half_squared_norm(*pair), pair[trained])
    (expected,) = torch.autograd.grad(formed(*pair), pair[trained])
    torch.testing.assert_close(found, expected)


def test_second_derivatives_are_right() -> None:
    assert torch.autograd.gradgradcheck(half_squared_norm, factors([2], 4, 2, 5))


class Largest(TorchDispatchMode):
    """Watches how large the tensors are that operations make."""

    def __init__(self) -> None:
        super().__init__()
        self.scalars = 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = op(*args, **(kwargs or {}))
        for each in tree_leaves(made):
            if isinstance(each, Tensor):
                self.scalars = max(self.scalars, each.numel())
        return made


@pytest.mark.parametrize("stack", [[], [2]])
def test_the_product_is_never_formed(stack: list[int]) -> None:
    left, right = factors(stack, 50, 3, 40)
    with Largest() as seen:
        half_squared_norm(left, right).backward()
    assert 0 < seen.scalars <= left.numel()
    with Largest() as seen:
        formed(left, right)
    assert seen.scalars == 50 * 40 * (stack or [1])[0]  # it would be seen


def network() -> tuple[nn.Module, dict[str, Unrolled]]:
    """A convolution, a grouped one and a linear layer in factors, and some that are not."""
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Conv2d(4, 6, (3, 2), bias=False), nn.Conv2d(6, 4, 3, groups=2), nn.Linear(5, 7)
    )
    layers = {name: Unrolled.of(net.get_submodule(name)) for name in ("1", "2", "3")}  # type: ignore[arg-type]
    replace_layers(net, {"1": 3, "2": 2, "3": 4})
    net.double()
    for name, parameter in net.named_parameters():
        parameter.data = random(*parameter.shape, key=name).detach()
    return net, layers


def test_the_penalty_is_the_sum_over_the_recomposed_weights() -> None:
    net, layers = network()
    expected = torch.zeros((), dtype=torch.float64)
    for name, layer in layers.items():
        first, second = (net.get_parameter(f"{name}.{each}.weight") for each in ("first", "second"))
        left, right = layer.join(first, second)
        expected = expected + 0.5 * layer.weight(left @ right).square().sum()
    found = frobenius_penalty(net, layers)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    named = [(name, p) for name, p in net.named_parameters() if name.endswith(("first.weight", "second.weight"))]
    assert len(named) == 6
    parameters = [parameter for _, parameter in named]
    gradients = (torch.autograd.grad(each, parameters) for each in (found, expected))
    for one, two in zip(*gradients, strict=True):
        assert (one - two).abs().max() < 1e-10 * float(two.abs().max())


def test_nothing_else_is_penalised() -> None:
    net, layers = network()
    frobenius_penalty(net, {"1": layers["1"]}).backward()
    assert {name for name, p in net.named_parameters() if p.grad is not None} == {"1.first.weight", "1.second.weight"}
