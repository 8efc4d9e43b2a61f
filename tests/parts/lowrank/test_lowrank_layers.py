"""Two layers in the place of one: what they compute, how many scalars they have, and how they get into a network."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from potluck.core.random import stream
from potluck.parts.lowrank.layers import Layer, Unrolled, bias_name, factor_names, factored, replace_layers

FEW = settings(max_examples=80)
MANY = settings(max_examples=300)
PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))
MODES = ["zeros", "reflect", "replicate", "circular"]


def random(*shape: int, key: object = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=stream(0, shape, key))


@dataclass(frozen=True)
class Case:
    """A convolution and a rank."""

    layer: nn.Conv2d
    rank: int


@st.composite
def cases(draw: st.DrawFn, groups: st.SearchStrategy[int] | None = None) -> Case:
    many = draw(st.integers(1, 3) if groups is None else groups)
    inputs, outputs = (many * draw(st.integers(1, 4)) for _ in range(2))
    padding: Any = draw(st.one_of(st.tuples(st.integers(0, 2), st.integers(0, 2)), st.sampled_from(["same", "valid"])))
    stride = (1, 1) if padding == "same" else draw(PAIR)
    layer = nn.Conv2d(
        inputs,
        outputs,
        draw(st.tuples(st.integers(1, 4), st.integers(1, 4))),
        stride,
        padding,
        draw(PAIR),
        many,
        draw(st.booleans()),
        draw(st.sampled_from(MODES)),
        dtype=torch.float64,
    )
    shape = Unrolled.of(layer)
    return Case(layer, draw(st.integers(1, max(shape.rows, shape.columns))))


def with_factors(layer: Layer, rank: int) -> tuple[nn.Sequential, Layer]:
    """A layer in random factors, and the same layer with their product for its weight."""
    shape = Unrolled.of(layer)
    left = random(shape.groups, shape.rows, rank, key="left")
    right = random(shape.groups, rank, shape.columns, key="right")
    pair, whole = factored(layer, rank), copy.deepcopy(layer)
    with torch.no_grad():
        whole.weight.copy_(shape.weight(left @ right))
        for each, weight in zip(pair, shape.split(left, right), strict=True):
            each.weight.copy_(weight)
        if whole.bias is not None:
            whole.bias.copy_(random(shape.outputs, key="bias"))
            pair.get_parameter("second.bias").copy_(whole.bias)
    return pair, whole


def agree(pair: nn.Module, whole: nn.Module, inputs: Tensor) -> None:
    ours, theirs = pair(inputs), whole(inputs)
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() < 1e-10


# ---- what factors compute ----


@MANY
@given(cases())
def test_factors_are_the_convolution_with_their_product(case: Case) -> None:
    """12 x 13 pixels: more than any kernel with its dilation, and enough for every kind of padding."""
    agree(*with_factors(case.layer, case.rank), random(2, case.layer.in_channels, 12, 13))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [(2, 1), (0, 2), "same", "valid"])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_every_kind_of_padding_and_of_groups(mode: str, padding: Any, groups: int) -> None:
    layer = nn.Conv2d(6, 6, (4, 3), padding=padding, dilation=(1, 2), groups=groups, padding_mode=mode).double()
    agree(*with_factors(layer, 2), random(2, 6, 9, 8))


@pytest.mark.parametrize("stride", [(1, 2), (2, 1), (3, 2)])
def test_rectangular_strides(stride: tuple[int, int]) -> None:
    agree(*with_factors(nn.Conv2d(4, 5, 3, stride, 1).double(), 3), random(2, 4, 9, 10))


def test_several_outputs_for_each_input_of_a_depthwise_convolution() -> None:
    layer = nn.Conv2d(3, 12, (5, 3), padding=(2, 1), groups=3).double()
    agree(*with_factors(layer, 2), random(2, 3, 7, 7))


@FEW
@given(st.lists(st.integers(1, 3), max_size=4), st.integers(1, 6), st.integers(1, 6), st.integers(1, 7), st.booleans())
def test_factors_are_the_linear_layer_with_their_product(
    leading: list[int], inputs: int, outputs: int, rank: int, bias: bool
) -> None:
    layer = nn.Linear(inputs, outputs, bias, dtype=torch.float64)
    agree(*with_factors(layer, rank), random(*leading, inputs))


def test_an_image_without_a_batch() -> None:
    agree(*with_factors(nn.Conv2d(3, 4, 3, padding=1).double(), 2), random(3, 6, 6))


def test_the_product_is_in_the_order_of_the_paper() -> None:
    """Rows are (out, kh) and columns (in, kw): W[o, i, y, x] = Σ_r A[o kh + y, r] B[r, i kw + x]."""
    layer = nn.Conv2d(2, 3, (2, 4))
    shape = Unrolled.of(layer)
    left, right = random(1, 6, 5, key="left"), random(1, 5, 8, key="right")
    weight, (first, second) = shape.weight(left @ right), shape.split(left, right)
    for o, i, y, x in [(0, 0, 0, 0), (2, 1, 1, 3), (1, 0, 1, 2), (0, 1, 0, 1)]:
        expected = sum(float(left[0, 2 * o + y, r] * right[0, r, 4 * i + x]) for r in range(5))
        assert float(weight[o, i, y, x]) == pytest.approx(expected, abs=1e-12)
        assert torch.equal(second[o, :, y, 0], left[0, 2 * o + y])
        assert torch.equal(first[:, i, 0, x], right[0, :, 4 * i + x])


# ---- unrolling ----


@FEW
@given(cases())
def test_unrolling_and_rolling_up_are_inverse(case: Case) -> None:
    shape, weight = Unrolled.of(case.layer), case.layer.weight.detach()
    assert shape.matrix(weight).shape == (case.layer.groups, shape.rows, shape.columns)
    assert torch.equal(shape.weight(shape.matrix(weight)), weight)
    assert torch.equal(shape.weight(shape.matrix(weight.to(memory_format=torch.channels_last))), weight)


@FEW
@given(cases())
def test_splitting_and_joining_are_inverse(case: Case) -> None:
    shape = Unrolled.of(case.layer)
    left, right = random(shape.groups, shape.rows, case.rank), random(shape.groups, case.rank, shape.columns)
    weights = shape.split(left, right)
    assert [each.shape for each in weights] == [each.weight.shape for each in factored(case.layer, case.rank)]
    assert all(each.is_contiguous() for each in weights)
    again = shape.join(*weights)
    assert torch.equal(again[0], left)
    assert torch.equal(again[1], right)


def test_the_same_for_a_linear_layer() -> None:
    shape, weight = Unrolled.of(nn.Linear(5, 3)), random(3, 5)
    assert torch.equal(shape.matrix(weight)[0], weight)
    assert torch.equal(shape.weight(weight[None]), weight)
    left, right = random(1, 3, 2), random(1, 2, 5)
    first, second = shape.split(left, right)
    assert torch.equal(first, right[0])
    assert torch.equal(second, left[0])
    assert all(torch.equal(one, two) for one, two in zip(shape.join(first, second), (left, right), strict=True))
    turned = shape.split(*(side.mT.contiguous().mT for side in (left, right)))
    assert all(each.is_contiguous() for each in turned)
    assert all(torch.equal(one, two) for one, two in zip(turned, (first, second), strict=True))


# ---- ranks and sizes ----


@pytest.mark.parametrize(
    ("layer", "ratio", "rank"),
    [
        (nn.Conv2d(64, 64, 3), 1 / 2, 32),
        (nn.Conv2d(64, 512, 3), 1 / 8, 64),
        (nn.Conv2d(512, 10, 3), 1 / 12, 1),
        (nn.Conv2d(512, 6, 3), 1 / 2, 3),
        (nn.Conv2d(512, 10, 3), 0.01, 1),  # at least one
        (nn.Conv2d(512, 19, 3), 0.1, 2),  # 1.9 is nearer to 2
        (nn.Conv2d(1, 64, (3, 1)), 0.5, 1),  # columns: 1
        (nn.Conv2d(2, 64, 3), 0.5, 6),  # columns: 2 x 3
        (nn.Linear(20, 100), 0.5, 20),  # columns: 20
        (nn.Conv2d(64, 64, 3, groups=4), 0.5, 8),  # 16 outputs in a group
        (nn.Conv2d(64, 64, 3, groups=64), 0.5, 1),
        (nn.Conv2d(8, 32, 3, groups=8), 0.9, 3),  # columns: 1 x 3
    ],
)
def test_the_rank_is_the_ratio_of_the_outputs(layer: Layer, ratio: float, rank: int) -> None:
    assert Unrolled.of(layer).rank(ratio) == rank


@FEW
@given(cases())
def test_sizes_are_what_is_counted(case: Case) -> None:
    shape = Unrolled.of(case.layer)
    assert shape.size() == case.layer.weight.numel()
    assert shape.size(case.rank) == sum(each.weight.numel() for each in factored(case.layer, case.rank))


@pytest.mark.parametrize("bias", [True, False])
def test_sizes_of_a_linear_layer(bias: bool) -> None:
    layer = nn.Linear(7, 5, bias)
    pair = factored(layer, 3)
    assert Unrolled.of(layer).size() == 35
    assert Unrolled.of(layer).size(3) == 3 * 12
    assert sum(p.numel() for p in pair.parameters()) == 36 + 5 * bias


# ---- factors as modules ----


@pytest.mark.parametrize("layer", [nn.Linear(4, 6), nn.Conv2d(4, 6, 3, groups=2)])
def test_making_factors_takes_no_random_numbers(layer: Layer) -> None:
    before = torch.get_rng_state()
    replace_layers(nn.Sequential(factored(layer, 2), copy.deepcopy(layer)), {"1": 2})
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("layer", [nn.Linear(4, 6), nn.Conv2d(4, 6, 3)])
def test_factors_are_of_the_layers_type(layer: Layer, dtype: torch.dtype) -> None:
    for parameter in factored(copy.deepcopy(layer).to(dtype), 2).parameters():
        assert (parameter.dtype, parameter.device.type) == (dtype, "cpu")
        assert parameter.requires_grad


def test_names_are_those_of_the_parameters() -> None:
    net = replace_layers(nn.ModuleDict({"a": nn.Sequential(nn.Linear(4, 6))}), {"a.0": 2})
    assert {*factor_names("a.0"), bias_name("a.0", factorised=True)} == {name for name, _ in net.named_parameters()}
    assert bias_name("a.0") == "a.0.bias"


def test_a_frozen_bias_stays_frozen() -> None:
    for layer in (nn.Linear(4, 6), nn.Conv2d(4, 6, 3)):
        layer.bias.requires_grad_(False)  # type: ignore[union-attr]
        assert not factored(layer, 2).get_parameter("second.bias").requires_grad


# ---- in a network ----


class Nest(nn.Module):
    """Layers in lists and dictionaries within each other."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [
                nn.ModuleDict({"conv": nn.Conv2d(3, 4, 3), "more": nn.Sequential(nn.ReLU(), nn.Conv2d(4, 4, 3))}),
                nn.Sequential(OrderedDict(inner=nn.Sequential(nn.Flatten(), nn.Linear(4 * 4 * 4, 5)))),
            ]
        )
        self.head = nn.Linear(5, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        first, last = self.blocks
        outputs: Tensor = self.head(last(first["more"](first["conv"](inputs))))
        return outputs


def load_truncated(net: nn.Module, whole: nn.Module, ranks: dict[str, int]) -> None:
    """Fill factors so that their product is the weight itself: one of them is the unit matrix."""
    for name in ranks:
        layer: Any = whole.get_submodule(name)
        shape = Unrolled.of(layer)
        matrix = shape.matrix(layer.weight.detach())
        unit = torch.eye(shape.columns).expand(shape.groups, -1, -1)
        with torch.no_grad():
            for each, weight in zip(factor_names(name), shape.split(matrix, unit), strict=True):
                net.get_parameter(each).copy_(weight)
            if layer.bias is not None:
                net.get_parameter(bias_name(name, factorised=True)).copy_(layer.bias)


@pytest.mark.parametrize(
    "names",
    [["blocks.0.conv"], ["blocks.0.more.1"], ["blocks.1.inner.1", "head"], ["blocks.0.more.1", "blocks.0.conv"]],
)
def test_layers_are_replaced_wherever_they_are(names: list[str]) -> None:
    whole = Nest()
    ranks = {name: Unrolled.of(whole.get_submodule(name)).columns for name in names}  # type: ignore[arg-type]
    net = copy.deepcopy(whole)
    order = [name for name, _ in net.named_modules()]
    assert replace_layers(net, ranks) is net
    load_truncated(net, whole, ranks)
    images = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(net(images), whole(images), rtol=1e-5, atol=1e-5)
    assert [name for name, _ in net.named_modules() if name in order] == order  # containers keep their order
    assert {name for name in names if isinstance(net.get_submodule(name), nn.Sequential)} == set(names)


def encoder(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, **options)


@pytest.mark.parametrize(
    ("build", "layers"),
    [
        (encoder, ["linear1", "linear2"]),
        (encoder, ["linear2"]),
        (lambda: encoder(activation="gelu", norm_first=True), ["linear1"]),
        (lambda: nn.TransformerEncoder(encoder(), 2), ["layers.0.linear1", "layers.1.linear2"]),
        (lambda: nn.TransformerEncoder(encoder(), 2), ["layers.1.linear1"]),
    ],
    ids=["both", "second", "gelu", "stack", "later in a stack"],
)
@pytest.mark.parametrize("training", [True, False])
def test_a_transformer_layer_runs_with_its_layers_in_factors(
    build: Callable[[], nn.Module], layers: list[str], training: bool
) -> None:
    whole = build()
    ranks = {name: Unrolled.of(whole.get_submodule(name)).columns for name in layers}  # type: ignore[arg-type]
    net = replace_layers(copy.deepcopy(whole), ranks).train(training)
    whole.train(training)
    load_truncated(net, whole, ranks)
    inputs, padding = torch.randn(3, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 5])
    for masks in ({}, {"src_key_padding_mask": padding}):
        with torch.no_grad():
            ours, theirs = net(inputs, **masks), whole(inputs, **masks)
        kept = ~padding if masks else torch.ones_like(padding, dtype=torch.bool)
        torch.testing.assert_close(ours[kept], theirs[kept], rtol=1e-4, atol=1e-5)


def test_an_image_half_an_example_wide_still_fits_its_padding() -> None:
    """Circular padding across and down of what is just large enough."""
    layer = nn.Conv2d(2, 2, 5, padding=2, padding_mode="circular").double()
    agree(*with_factors(layer, 4), random(1, 2, 2, 2))
    whole = with_factors(layer, 4)[1]
    assert isinstance(whole, nn.Conv2d)
    images = random(1, 2, 2, 2)
    by_hand = F.conv2d(F.pad(images, (2, 2, 2, 2), mode="circular"), whole.weight, whole.bias)
    torch.testing.assert_close(whole(images), by_hand)
