"""Convolutions of kernel size 1 with a stride never run with channels last: PyTorch may write out of bounds there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from potluck.core.goals.classes import Classes
from potluck.core.types import Phase, Train
from potluck.core.ways.operations import convolution, is_unsafe
from potluck.core.ways.swift import Swift
from potluck.core.ways.way import Way
from potluck.models.catalogue import find_model

LAST = torch.channels_last
conv2d = partial(convolution, F.conv2d)


@pytest.mark.parametrize(
    ("kernel", "stride", "unsafe"),
    [
        ((4, 3, 1, 1), 2, True),
        ((4, 64, 1, 1), (2, 2), True),
        ((4, 3, 1, 1), (1, 2), True),
        ((4, 3, 1, 1), [3], True),
        ((4, 3, 1, 1), 1, False),
        ((4, 3, 1, 1), (1, 1), False),
        ((4, 3, 3, 3), 2, False),
        ((4, 3, 1, 3), 2, False),
        ((4, 3, 2, 1), (2, 1), False),
        ((4, 3, 1), 2, True),
        ((4, 3, 1), (1,), False),
        ((4, 3, 1, 1, 1), (1, 1, 2), True),
        ((4, 3, 1, 1, 2), 2, False),
    ],
)
def test_the_rule_asks_for_kernel_and_stride_alone(
    kernel: tuple[int, ...], stride: int | Sequence[int], unsafe: bool
) -> None:
    assert is_unsafe(kernel, stride) is unsafe


def results(convolve: Any, images: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> list[Tensor]:
    """Output and gradients of a convolution."""
    leaves = [tensor.clone().requires_grad_() for tensor in (images, weight, bias) if tensor is not None]
    output = convolve(leaves[0], leaves[1], leaves[2] if bias is not None else None, *settings)
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return [output.detach(), *torch.autograd.grad(output, leaves, weights)]


@given(st.data())
def test_what_takes_its_place_gives_the_same(data: st.DataObject) -> None:
    plain, dims = data.draw(st.sampled_from([(F.conv1d, 1), (F.conv2d, 2), (F.conv3d, 3)]))

    def each(least: int, most: int) -> st.SearchStrategy[Any]:
        return st.tuples(*[st.integers(least, most)] * dims)

    groups = data.draw(st.integers(1, 3))
    inputs, outputs = groups * data.draw(st.integers(1, 4)), groups * data.draw(st.integers(1, 4))
    shape = (*data.draw(st.sampled_from([(), (1,), (3,)])), inputs, *data.draw(each(1, 9)))
    stride: Any = data.draw(st.integers(2, 4) | each(1, 3) | st.just([2]))
    padding: Any = data.draw(st.integers(0, 2) | each(0, 2) | st.just("valid") | st.just((1,)))
    rng = torch.Generator().manual_seed(0)
    images, weight, bias = (
        torch.randn(size, generator=rng, dtype=torch.float64)
        for size in (shape, (outputs, inputs // groups, *[1] * dims), (outputs,))
    )
    settings = (data.draw(st.sampled_from([bias, None])), stride, padding, data.draw(st.integers(1, 2)), groups)
    expected, found = (
        results(convolve, images, weight, *settings) for convolve in (plain, partial(convolution, plain))
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_other_convolutions_are_pytorchs_own_to_the_bit() -> None:
    images, weight = torch.randn(2, 3, 9, 9), torch.randn(4, 3, 3, 3)
    for one, other in zip(
        results(conv2d, images, weight, None, 2, 1), results(F.conv2d, images, weight, None, 2, 1), strict=True
    ):
        assert torch.equal(one, other)


def test_what_pytorch_refuses_is_still_refused() -> None:
    with pytest.raises(RuntimeError, match="same"):
        conv2d(torch.randn(1, 3, 4, 4), torch.randn(2, 3, 1, 1), stride=2, padding="same")


def test_channels_stay_last_both_ways() -> None:
    images = torch.randn(2, 4, 8, 8).contiguous(memory_format=LAST).requires_grad_()
    output = conv2d(images, torch.randn(5, 4, 1, 1), stride=2)
    (gradient,) = torch.autograd.grad(output.square().sum(), images)
    assert output.is_contiguous(memory_format=LAST)
    assert gradient.is_contiguous(memory_format=LAST)


class Noting(TorchDispatchMode):
    """Notes the convolutions that PyTorch is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[torch.Size, list[int]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            self.seen.append((args[1].shape, args[3]))
        return func(*args, **(kwargs or {}))

    @property
    def unsafe(self) -> int:
        return sum(is_unsafe(kernel, stride) for kernel, stride in self.seen)


def convolutions(net: nn.Module, name: str) -> Noting:
    """The convolutions of a training step in a way; on the meta device, where nothing can break."""
    way, train = Way.called(name), Train()
    phase = way.phase(Phase(Classes()), train)
    batch = torch.zeros(4, 3, 16, 16, device="meta"), torch.zeros(4, dtype=torch.long, device="meta")
    with Noting() as noting, way.arranged(net):
        phase.loss(net, way.batch(batch), {}).backward()
    return noting


@pytest.mark.parametrize("width", [1.0, 0.0625])
@pytest.mark.parametrize("name", ["preresnet18", "resnet18"])
def test_no_network_runs_one_with_channels_last(name: str, width: float) -> None:
    net = find_model(name)(width).to("meta")
    plain, last = convolutions(net, "plain"), convolutions(net, "channels-last")
    assert plain.unsafe >= 3  # the shortcuts
    assert last.unsafe == 0
    assert len(last.seen) == len(plain.seen)


def test_it_is_seen_however_it_is_called() -> None:
    images, weight = torch.zeros(1, 3, 4, 4), torch.zeros(2, 3, 1, 1)
    with Noting() as noting, Swift():
        nn.Conv2d(3, 2, 1, 2)(images)
        F.conv2d(images, weight, stride=2)
        torch.conv2d(input=images, weight=weight, stride=(2, 2))
        nn.Conv2d(3, 2, 1, 2, padding=1, padding_mode="reflect")(images)
        nn.Conv1d(3, 2, 1, 2)(images.flatten(2))
        nn.Conv3d(3, 2, 1, 2)(images.unsqueeze(2))
    assert len(noting.seen) == 6
    assert noting.unsafe == 0
