"""Faster operations: the bits of PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from potluck.core.ways.swift import Swift, channels_are_last

LAST = torch.channels_last


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Equal down to the sign of zero."""
    whole = {4: torch.int32, 8: torch.int64, 2: torch.int16}[one.element_size()]
    return one.dtype == other.dtype and torch.equal(one.contiguous().view(whole), other.contiguous().view(whole))


def numbers(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def drawn(make: Callable[[Tensor], Tensor], inputs: Tensor, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """(output, gradient by the inputs, the global generator's state afterwards)."""
    leaf = inputs.clone(memory_format=torch.preserve_format).requires_grad_()
    torch.manual_seed(seed)
    output = make(leaf)
    state = torch.get_rng_state()
    output.backward(numbers(tuple(output.shape), seed=9))
    assert leaf.grad is not None
    return output.detach(), leaf.grad, state


def swiftly(make: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def made(inputs: Tensor) -> Tensor:
        with Swift():
            return make(inputs)

    return made


# ---- dropout ----

SHAPES = st.lists(st.integers(0, 9), max_size=4).map(tuple) | st.sampled_from([(17,), (3000,), (70, 300)])


@given(SHAPES, st.floats(0.001, 0.999), st.integers(0, 1000))
def test_dropout_drops_the_same_bit_for_bit(shape: tuple[int, ...], p: float, seed: int) -> None:
    inputs = numbers(shape, seed)
    expected = drawn(lambda x: F.dropout(x, p), inputs, seed)
    found = drawn(swiftly(lambda x: F.dropout(x, p)), inputs, seed)
    assert all(same_bits(one, other) for one, other in zip(found[:2], expected[:2], strict=True))
    assert torch.equal(found[2], expected[2])


@given(st.tuples(*[st.integers(1, 7)] * 4), st.floats(0.001, 0.999))
def test_with_channels_last_the_units_of_the_plain_layout_are_dropped(shape: tuple[int, ...], p: float) -> None:
    inputs = numbers(shape)
    expected = drawn(lambda x: F.dropout(x, p), inputs)
    found = drawn(swiftly(lambda x: F.dropout(x, p)), inputs.contiguous(memory_format=LAST))
    assert all(same_bits(one, other) for one, other in zip(found[:2], expected[:2], strict=True))
    assert torch.equal(found[2], expected[2])


def test_dropout_is_replaced_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout in which PyTorch itself drops other units tells the two apart."""
    inputs = numbers((2, 5, 6, 6)).contiguous(memory_format=LAST)
    assert not same_bits(drawn(F.dropout, inputs)[0], drawn(swiftly(F.dropout), inputs)[0])
    assert not same_bits(drawn(nn.Dropout(0.3), inputs)[0], drawn(swiftly(nn.Dropout(0.3)), inputs)[0])


FALLING_THROUGH: dict[str, tuple[Callable[[Tensor], Tensor], torch.dtype]] = {
    "p=0": (lambda x: F.dropout(x, 0.0), torch.float32),
    "p=1": (lambda x: F.dropout(x, 1.0), torch.float32),
    "eval": (lambda x: F.dropout(x, 0.5, training=False), torch.float32),
    "module in eval": (nn.Dropout(0.5).eval(), torch.float32),
    "float64": (lambda x: F.dropout(x, 0.5), torch.float64),
    "bfloat16": (lambda x: F.dropout(x, 0.5), torch.bfloat16),
    "whole channels": (lambda x: F.dropout2d(x, 0.5), torch.float32),
    "alpha": (lambda x: F.alpha_dropout(x, 0.5, training=True), torch.float32),
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, LAST])
@pytest.mark.parametrize("case", FALLING_THROUGH)
def test_other_dropout_is_pytorchs(case: str, layout: torch.memory_format) -> None:
    make, dtype = FALLING_THROUGH[case]
    inputs = numbers((3, 4, 5, 5)).to(dtype).contiguous(memory_format=layout)
    for one, other in zip(drawn(swiftly(make), inputs), drawn(make, inputs), strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


@pytest.mark.parametrize("make", [lambda x: F.dropout(x, 0.4, inplace=True), nn.Dropout(0.4, inplace=True)])
def test_dropout_in_place_stays_in_place(make: Callable[[Tensor], Tensor]) -> None:
    one, other = numbers((4, 30)), numbers((4, 30))
    torch.manual_seed(5)
    expected = make(other)
    torch.manual_seed(5)
    with Swift():
        found = make(one)
    assert found.data_ptr() == one.data_ptr()
    assert same_bits(found, expected)


def test_a_share_that_cannot_be_is_refused_as_ever() -> None:
    with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"), Swift():
        F.dropout(torch.zeros(3), 1.5)


# ---- max pooling ----


@st.composite
def poolings(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """(shape of the images, settings) that PyTorch accepts."""
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    least = [1 + d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    height, width = (draw(st.integers(max(2, size), 7)) for size in least)
    settings: dict[str, Any] = {
        "kernel_size": kernel[0] if kernel[0] == kernel[1] and draw(st.booleans()) else kernel,
        "stride": draw(st.none() | st.integers(1, 3) | st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "padding": draw(st.tuples(*(st.integers(0, size // 2) for size in kernel))),
        "dilation": dilation,
        "ceil_mode": draw(st.booleans()),
    }
    return (draw(st.integers(1, 3)), draw(st.integers(2, 5)), height, width), settings


@given(poolings(), st.booleans(), st.sampled_from([torch.float32, torch.float64]), st.sampled_from(["F", "module"]))
def test_max_pooling_has_the_same_bits(
    pooling: tuple[tuple[int, ...], dict[str, Any]], ties: bool, dtype: torch.dtype, how: str
) -> None:
    shape, settings = pooling
    inputs = numbers(shape).to(dtype)
    images = (inputs.round() if ties else inputs).contiguous(memory_format=LAST)
    assert channels_are_last(images)
    make = nn.MaxPool2d(**settings) if how == "module" else lambda x: F.max_pool2d(x, **settings)
    expected, found = drawn(make, images), drawn(swiftly(make), images)
    assert all(same_bits(one, other) for one, other in zip(found[:2], expected[:2], strict=True))
    assert found[0].stride() == expected[0].stride()
    assert found[1].is_contiguous(memory_format=LAST)  # what it is for


@pytest.mark.parametrize("make", [nn.MaxPool2d(2), lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, (3, 2), 1)])
def test_max_pooling_is_replaced_only_where_channels_come_last(make: Callable[[Tensor], Tensor]) -> None:
    images = numbers((2, 3, 6, 6))
    with Swift():
        replaced = make(images.contiguous(memory_format=LAST).requires_grad_())
        own = make(images.clone().requires_grad_())
        single = make(images[0].clone().requires_grad_())
    assert "MaxPoolBackward" in type(replaced.grad_fn).__name__
    assert "MaxPoolBackward" not in type(own.grad_fn).__name__
    assert torch.equal(replaced, own)
    assert torch.equal(single, own[0])


def test_a_gradient_that_comes_in_any_layout() -> None:
    """A sum's gradient is one number seen everywhere."""
    images = numbers((2, 3, 6, 6)).contiguous(memory_format=LAST)
    for loss in (lambda x: x.sum(), lambda x: (x.transpose(2, 3) * numbers((2, 3, 3, 3))).sum()):
        gradients = []
        for pool in (lambda x: F.max_pool2d(x, 2), swiftly(lambda x: F.max_pool2d(x, 2))):
            leaf = images.clone(memory_format=torch.preserve_format).requires_grad_()
            loss(pool(leaf)).backward()
            gradients.append(leaf.grad)
        assert torch.equal(*gradients)


def test_pooling_that_tells_the_places_is_pytorchs() -> None:
    images = numbers((2, 3, 6, 6)).contiguous(memory_format=LAST)
    for make in (lambda x: F.max_pool2d(x, 2, return_indices=True), nn.MaxPool2d(2, return_indices=True)):
        with Swift():
            pooled, places = make(images)
        expected, where = F.max_pool2d_with_indices(images, 2)
        assert torch.equal(pooled, expected)
        assert torch.equal(places, where)


# ---- max pooling after a ReLU ----

RELUS: dict[str, Callable[[Tensor], Tensor]] = {
    "module": nn.ReLU(),
    "F": F.relu,
    "torch": torch.relu,
    "method": lambda x: x.relu(),
}


def behind_a_layer(make: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """What is pooled has a history, so that its gradient goes somewhere."""
    return lambda x: make(x * 2)


@given(poolings(), st.booleans(), st.sampled_from(sorted(RELUS)))
def test_max_pooling_of_a_relu_has_the_same_bits(
    pooling: tuple[tuple[int, ...], dict[str, Any]], ties: bool, name: str
) -> None:
    shape, settings = pooling
    inputs = numbers(shape)
    images = (inputs.round() if ties else inputs).contiguous(memory_format=LAST)
    make = behind_a_layer(lambda x: F.max_pool2d(RELUS[name](x), **settings))
    expected, found = drawn(make, images), drawn(swiftly(make), images)
    assert all(same_bits(one, other) for one, other in zip(found[:2], expected[:2], strict=True))


def test_a_relu_before_max_pooling_has_no_backward_pass_of_its_own() -> None:
    images = numbers((2, 3, 6, 6)).contiguous(memory_format=LAST).requires_grad_()
    for relu in RELUS.values():
        with Swift():
            pooled = F.max_pool2d(relu(images), 2)
        assert pooled.grad_fn is not None
        assert "AccumulateGrad" in type(pooled.grad_fn.next_functions[0][0]).__name__


def test_what_was_rectified_is_held_no_longer_than_to_the_next_operation() -> None:
    images = numbers((2, 3, 6, 6)).contiguous(memory_format=LAST)
    with Swift() as mode:
        F.relu(images)
        assert mode.rectified is not None
        torch.exp(images)
        assert mode.rectified is None


OTHERWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "in place": lambda x: F.max_pool2d(F.relu(x, inplace=True), 2),
    "module in place": nn.Sequential(nn.ReLU(inplace=True), nn.MaxPool2d(2)),
    "something between": lambda x: F.max_pool2d(F.relu(x) + 1, 2),
    "of another": lambda x: F.max_pool2d(x, 2) + F.max_pool2d((x, F.relu(x))[0], 2),
    "used twice": lambda x: (lambda y: F.max_pool2d(y, 2) * 3 + F.avg_pool2d(y, 2))(F.relu(x)),
    "pooled twice": lambda x: (lambda y: F.max_pool2d(y, 2) * 3 + F.max_pool2d(y, 2))(F.relu(x)),
    "the input used, too": lambda x: F.max_pool2d(F.relu(x), 2) + F.avg_pool2d(x, 2),
    "a ReLU of a ReLU": lambda x: F.max_pool2d(F.relu(F.relu(x)), 2),
    "without gradients": lambda x: F.max_pool2d(F.relu(x.detach()), 2) + F.avg_pool2d(x, 2),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_whatever_else_becomes_of_a_relu_is_right(case: str) -> None:
    images = numbers((2, 3, 6, 6)).contiguous(memory_format=LAST)
    make = behind_a_layer(OTHERWISE[case])
    expected, found = drawn(make, images), drawn(swiftly(make), images)
    assert all(torch.allclose(one, other, rtol=1e-6) for one, other in zip(found[:2], expected[:2], strict=True))


def test_afterwards_operations_are_pytorchs_again() -> None:
    images = numbers((2, 3, 6, 6)).contiguous(memory_format=LAST).requires_grad_()
    before = drawn(F.dropout, images.detach())
    with pytest.raises(RuntimeError, match="a bug"), Swift():
        raise RuntimeError("a bug")
    with Swift(), Swift():
        pass
    assert "MaxPoolBackward" not in type(F.max_pool2d(images, 2).grad_fn).__name__
    assert torch.equal(drawn(F.dropout, images.detach())[0], before[0])


# ---- linear layers ----


@pytest.mark.parametrize(
    ("examples", "inputs", "outputs"), [(1, 5, 3), (16, 5, 3), (37, 20, 1), (64, 7, 9), (65, 5, 3)]
)
def test_linear_layers_differ_by_rounding_alone(examples: int, inputs: int, outputs: int) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)]
    layers[1].load_state_dict(layers[0].state_dict())
    data = numbers((examples, inputs))
    expected, found = drawn(layers[0], data), drawn(swiftly(layers[1]), data)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(found[:2], expected[:2], strict=True))
    assert found[0].is_contiguous()
    for ours, theirs in zip(layers[1].parameters(), layers[0].parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-4)  # type: ignore[arg-type]


@pytest.mark.parametrize("examples", [4, 20])
def test_a_linear_layer_may_be_called_by_keywords(examples: int) -> None:
    inputs, weight, bias = numbers((examples, 5)), numbers((3, 5)), numbers((3,))
    with Swift():
        found = F.linear(inputs, weight, bias=bias), F.linear(input=inputs, weight=weight, bias=bias)
    assert all(torch.allclose(each, F.linear(inputs, weight, bias), atol=1e-5) for each in found)
