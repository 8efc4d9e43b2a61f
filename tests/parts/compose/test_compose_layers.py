"""Composed weights: what they are, and that both ways to compute a layer agree."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from potluck.core.ways.way import lay_out
from potluck.parts.compose import layers as parts
from potluck.parts.compose.layers import Bank, compose, compose_layers, orthogonality

CONVOLUTION = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def bank_of(layer: nn.Module, size: int, count: int, weight: str = "weight") -> Bank:
    return Bank("layer", "0", weight, size, count, tuple(getattr(layer, weight).shape[2:]))


def fill(net: nn.Module, seed: int = 0) -> None:
    """Orthogonal bases and ordinary coefficients, so that outputs are about 1."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for name, parameter in net.named_parameters():
            if name.endswith("original0"):
                parameter.copy_(parts.start_basis(parameter))
            elif name.endswith("original1"):
                parameter.copy_(parts.start_coefficients(parameter, "uniform"))


def both_forms(layer: nn.Module, size: int, count: int) -> tuple[nn.Module, nn.Module]:
    """The same composed layer twice: one makes its weight, one works in groups."""
    composed, grouped = nn.Sequential(layer), nn.Sequential(copy.deepcopy(layer))
    bank = bank_of(layer, size, count)
    compose_layers(composed, [bank])
    compose_layers(grouped, [bank], grouped=["layer"])
    fill(composed)
    grouped.load_state_dict(composed.state_dict())  # the names are the same
    return composed, grouped


def test_a_weight_is_a_sum_of_pieces_of_the_basis() -> None:
    basis, coefficients = torch.randn(3, 2, 2, 1), torch.randn(5, 4 * 3)
    weight = torch.zeros(5, 8, 2, 1)
    for o in range(5):
        for g in range(4):
            for r in range(2):
                for j in range(3):
                    weight[o, g * 2 + r] += coefficients[o, g * 3 + j] * basis[j, r]
    torch.testing.assert_close(compose(basis, coefficients), weight)


def test_a_matrix_is_a_kernel_without_extent() -> None:
    basis, coefficients = torch.randn(3, 4), torch.randn(5, 2 * 3)
    torch.testing.assert_close(compose(basis, coefficients), compose(basis[..., None, None], coefficients).flatten(1))


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Module, int, int, tuple[int, ...]]:
    """A convolution of any kind, R1, R2 and the shape of an input."""
    dims = draw(st.integers(1, 3))
    each = {"min_size": dims, "max_size": dims}
    kernel = tuple(draw(st.lists(st.integers(1, 3), **each)))
    dilation = tuple(draw(st.lists(st.integers(1, 2), **each)))
    padding: Any = draw(st.sampled_from(["same", "valid", "numbers"]))
    if padding == "numbers":
        padding = tuple(draw(st.lists(st.integers(0, 2), **each)))
    stride = (1,) * dims if padding == "same" else tuple(draw(st.lists(st.integers(1, 3), **each)))
    size, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    count = draw(st.integers(1, size * max(1, int(torch.tensor(kernel).prod()))))
    layer = CONVOLUTION[dims](
        size * groups,
        draw(st.integers(1, 4)),
        kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        bias=draw(st.booleans()),
        padding_mode=draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"])),
    )
    spatial = tuple(draw(st.lists(st.integers(6, 8), **each)))
    return layer, size, count, (draw(st.integers(1, 3)), size * groups, *spatial)


@settings(max_examples=60, deadline=None)
@given(convolutions())
def test_both_forms_of_a_convolution_agree(drawn: tuple[nn.Module, int, int, tuple[int, ...]]) -> None:
    layer, size, count, shape = drawn
    composed, grouped = both_forms(layer, size, count)
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    agree(composed, grouped, inputs)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.booleans(), st.sampled_from([(), (3,), (2, 3)]))
def test_both_forms_of_a_linear_layer_agree(
    size: int, groups: int, outputs: int, bias: bool, leading: tuple[int, ...]
) -> None:
    composed, grouped = both_forms(nn.Linear(size * groups, outputs, bias=bias), size, max(1, size - 1))
    agree(composed, grouped, torch.randn(*leading, size * groups, generator=torch.Generator().manual_seed(0)))


def agree(composed: nn.Module, grouped: nn.Module, inputs: Tensor) -> None:
    for kind, close in ((torch.float32, 1e-6), (torch.float64, 1e-10)):
        found = [net.to(kind)(inputs.to(kind)) for net in (composed, grouped)]
        scale = max(1.0, float(found[0].detach().abs().max()))
        assert float((found[0] - found[1]).detach().abs().max()) <= close * scale
    for net, output in zip((composed, grouped), found, strict=True):
        net.zero_grad()
        output.square().sum().backward()
    for name, parameter in composed.named_parameters():
        torch.testing.assert_close(parameter.grad, grouped.get_parameter(name).grad, rtol=1e-9, atol=1e-9)


def test_a_single_picture_without_a_batch_is_taken_too() -> None:
    composed, grouped = both_forms(nn.Conv2d(4, 6, 3), 2, 5)
    picture = torch.randn(4, 7, 7)
    torch.testing.assert_close(composed(picture), grouped(picture))
    assert grouped(picture).shape == (6, 5, 5)


@pytest.mark.parametrize("stride", [1, 2])
def test_images_may_have_their_channels_last(stride: int) -> None:
    images = torch.randn(3, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    for net in both_forms(nn.Conv2d(4, 6, 3, stride=stride), 2, 5):
        learned = []
        for form in (torch.contiguous_format, torch.channels_last):
            lay_out(net, form)
            net.zero_grad()
            net(images.contiguous(memory_format=form)).square().mean().backward()
            learned.append({name: parameter.grad for name, parameter in net.named_parameters()})
        torch.testing.assert_close(learned[1], learned[0], rtol=1e-4, atol=1e-5)


def test_in_groups_the_weight_is_never_made_unless_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    composed, grouped = both_forms(nn.Conv2d(4, 6, 3), 2, 5)
    monkeypatch.setattr(parts, "compose", lambda *of: made.append(of) or compose(*of))
    grouped(torch.zeros(1, 4, 5, 5))
    assert not made
    assert torch.equal(grouped[0].weight, composed[0].weight)
    assert len(made) == 2


def test_a_copy_computes_with_its_own_tensors() -> None:
    for net in both_forms(nn.Conv2d(4, 6, 3), 2, 5):
        other = copy.deepcopy(net)
        inputs = torch.randn(1, 4, 5, 5)
        before = net(inputs)
        for parameter in other.parameters():
            nn.init.zeros_(parameter)
        assert torch.equal(net(inputs), before)
        assert not other(inputs).any()


class Twice(nn.Module):
    """Uses one layer for several steps."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.add_module("0", layer)

    def forward(self, inputs: Tensor) -> Tensor:
        (layer,) = self.children()
        state: Tensor = layer(inputs)
        for _ in range(3):
            state = layer(inputs, state)
        return state


@pytest.mark.parametrize(
    ("net", "weights", "inputs"),
    [
        (nn.Sequential(nn.LSTM(6, 4, num_layers=2, bidirectional=True)), ["weight_hh_l0", "weight_ih_l1"], (5, 2, 6)),
        (nn.Sequential(nn.GRU(6, 4, batch_first=True)), ["weight_ih_l0", "weight_hh_l0"], (2, 5, 6)),
        (Twice(nn.GRUCell(6, 4)), ["weight_ih", "weight_hh"], (2, 6)),
    ],
    ids=["lstm", "gru", "cell"],
)
def test_recurrent_layers_run_on_weights_composed_once_per_pass(
    net: nn.Module, weights: list[str], inputs: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, layer = copy.deepcopy(net), net.get_submodule("0")
    compose_layers(net, [bank_of(layer, 2, 2, weight) for weight in weights])
    fill(net)
    with torch.no_grad():
        for weight in weights:
            plain.get_parameter(f"0.{weight}").copy_(getattr(net.get_submodule("0"), weight))
    made: list[object] = []
    monkeypatch.setattr(parts, "compose", lambda *of: made.append(of) or compose(*of))
    sequence = torch.randn(inputs)
    ours, theirs = (first_of(each(sequence)) for each in (net, plain))
    torch.testing.assert_close(ours, theirs)
    assert len(made) == len(weights)
    ours.sum().backward()
    assert all(parameter.grad is not None for name, parameter in net.named_parameters() if "original" in name)
    nn.init.zeros_(net.get_parameter(f"0.parametrizations.{weights[0]}.original1"))
    assert not torch.equal(first_of(net(sequence)), ours)  # the next pass sees the new coefficients


def first_of(output: Any) -> Tensor:
    found: Tensor = output if isinstance(output, Tensor) else output[0]
    return found


def test_orthogonality_and_its_gradient() -> None:
    basis = torch.randn(3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    rows = basis.detach().flatten(1)
    expected = 0.0
    for i in range(3):
        for j in range(3):
            expected += (float(sum(a * b for a, b in zip(rows[i], rows[j], strict=True))) - (i == j)) ** 2
    gradient = 4 * (rows @ rows.T - torch.eye(3)) @ rows  # of the sum
    for norm_of, entries in (("sum", 1), ("mean", 9)):
        basis.grad = None
        loss = orthogonality(basis, norm_of)  # type: ignore[arg-type]
        loss.backward()
        assert float(loss.detach()) == pytest.approx(expected / entries, rel=1e-12)
        assert basis.grad is not None
        torch.testing.assert_close(basis.grad.flatten(1), gradient / entries)


def test_bases_are_found_in_a_network() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4), nn.Linear(4, 2))
    compose_layers(net, [Bank("0", "0", "weight", 2, 1, ()), Bank("1", "1", "weight", 3, 2, ())])
    assert [tuple(basis.shape) for basis in parts.bases_in(net)] == [(1, 2), (2, 3)]
    assert all(basis.requires_grad for basis in parts.bases_in(net))


def test_how_bases_and_coefficients_start() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        basis = parts.start_basis(torch.zeros(12, 4, 3, 3))
        torch.testing.assert_close(basis.flatten(1) @ basis.flatten(1).T, torch.eye(12))
        even = parts.start_coefficients(torch.zeros(50, 400), "uniform")
        like = nn.Conv2d(400, 50, 1).weight.detach()
        bell = parts.start_coefficients(torch.zeros(50, 400), "normal")
    assert float(even.abs().max()) <= 0.05
    assert float(even.std()) == pytest.approx(float(like.std()), rel=0.02)
    assert float(bell.std()) == pytest.approx(0.2, rel=0.02)


def layers() -> Iterator[tuple[nn.Module, Tensor, int]]:
    """Layers, inputs for one example and the numbers that they put out."""
    yield nn.Conv2d(8, 6, 3, stride=2, padding=1), torch.zeros(1, 8, 9, 9), 6 * 25
    yield nn.Conv1d(8, 6, 3), torch.zeros(1, 8, 9), 6 * 7
    yield nn.Linear(8, 6), torch.zeros(1, 5, 8), 6 * 5


@pytest.mark.parametrize(("layer", "example", "outputs"), list(layers()), ids=["conv2d", "conv1d", "linear"])
def test_operations_are_those_that_pytorch_counts(layer: nn.Module, example: Tensor, outputs: int) -> None:
    batch, bank = 7, bank_of(layer, 4, 3)
    shape = tuple(layer.weight.shape)  # type: ignore[union-attr,arg-type]
    expected = [rule(bank, shape, outputs, batch) for rule in (parts.composed_macs, parts.grouped_macs)]
    for net, count in zip(both_forms(layer, 4, 3), expected, strict=True):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            net(example.expand(batch, *example.shape[1:]))
        assert counter.get_total_flops() == 2 * count


def test_few_positions_or_few_pieces_decide_the_form() -> None:
    few, many = Bank("", "", "weight", 16, 8, (3, 3)), Bank("", "", "weight", 16, 128, (3, 3))
    shape = (128, 128, 3, 3)
    assert parts.grouped_is_cheaper(few, shape, 128 * 100, 32)
    assert not parts.grouped_is_cheaper(many, shape, 128 * 100, 32)
    assert parts.grouped_is_cheaper(many, shape, 128, 1)  # composing would cost more than all that is computed


def test_a_layer_that_computes_something_of_its_own_is_not_grouped() -> None:
    class Doubled(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return 2 * super().forward(inputs)

    class Cut(nn.Conv2d):
        def _conv_forward(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return super()._conv_forward(inputs, weight.relu(), bias)

    class Named(nn.Conv2d):
        pass

    found = [parts.can_be_grouped(layer) for layer in (nn.Linear(2, 2), nn.Conv3d(2, 2, 1), Named(2, 2, 1))]
    assert found == [True] * 3
    assert not parts.can_be_grouped(Doubled(2, 2))
    assert not parts.can_be_grouped(Cut(2, 2, 1))
    assert not parts.can_be_grouped(nn.LSTM(2, 2))
