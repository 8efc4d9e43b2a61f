"""Prices of layers: as counts of the network in factors say, and sane where a clock says them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from potluck.core.tensors import size_in_bytes, state_of
from potluck.models.resnet import resnet18
from potluck.parts.cost.level import count_macs, count_parameters
from potluck.parts.lowrank import prices
from potluck.parts.lowrank.layers import replace_layers
from potluck.parts.lowrank.prices import Price, PriceList, Unit, line, price_list
from potluck.parts.lowrank.survey import Survey, survey

BATCH = 3


class Mixed(nn.Module):
    """Convolutions of many kinds, one of them called twice, and linear layers on positions and on vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.tall = nn.Conv2d(8, 12, (5, 3), stride=(2, 1), padding=(1, 2), bias=False)
        self.norm = nn.BatchNorm2d(12)
        self.twice = nn.Conv2d(12, 12, 3, padding="same", padding_mode="circular")
        self.grouped = nn.Conv2d(12, 24, 3, stride=(1, 2), groups=3, dilation=2)
        self.point = nn.Conv2d(24, 20, 1, stride=2, bias=False)
        self.positions = nn.Linear(20, 16)
        self.vector = nn.Linear(16, 10, bias=False).double()
        self.head = nn.Linear(10, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.norm(self.tall(self.stem(inputs)))
        hidden = self.twice(torch.relu(self.twice(hidden))[..., 1:])
        hidden = self.point(self.grouped(hidden)).flatten(2).transpose(1, 2)
        hidden = self.vector(input=self.positions(hidden).mean(1).double())
        out: Tensor = self.head(nn.functional.dropout(hidden.float(), training=self.training))
        return out


class Looking(Mixed):
    """It cannot run where tensors have no content."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs * (1 if inputs.sum().item() else 2))


Case = tuple[nn.Module, list[Tensor], Survey]


@cache
def case(name: str) -> Case:
    if name == "resnet18":
        net, example = resnet18(), [torch.zeros(1, 3, 32, 32)]
        return net, example, survey(net, example, ("head.weight", "head.bias"), start=1)
    net, example = (Mixed() if name == "mixed" else Looking()), [torch.zeros(1, 3, 17, 19)]
    return net, example, survey(net, example, (), start=0, factor=("stem", "grouped", "point", "head"))


def count(unit: Unit, net: nn.Module, example: Sequence[Tensor]) -> int:
    if unit == "parameters":
        return count_parameters(net)
    return size_in_bytes(state_of(net)) if unit == "bytes" else count_macs(net, example[0], BATCH)


@cache
def listed(unit: Unit, name: str) -> PriceList:
    net, example, found = case(name)
    return price_list(unit, net, found, example, BATCH)


@st.composite
def some_ranks(draw: st.DrawFn, name: str) -> dict[str, int]:
    """Ranks for some of the layers, up to the largest there is."""
    layers = case(name)[2].layers
    names = draw(st.lists(st.sampled_from(list(layers)), unique=True))
    return {name: draw(st.integers(1, min(layers[name].rows, layers[name].columns))) for name in names}


@pytest.mark.parametrize("unit", ["parameters", "bytes", "macs"])
@pytest.mark.parametrize(("name", "layers"), [("mixed", 8), ("looking", 8), ("resnet18", 16)])
def test_counts_are_those_of_the_network_in_factors(unit: Unit, name: str, layers: int) -> None:
    net, example, found = case(name)
    assert len(found.layers) == layers
    assert list(listed(unit, name).layers) == list(found.layers)
    assert listed(unit, name).total == count(unit, net, example)

    @settings(max_examples=3 if name == "resnet18" else 25)
    @given(some_ranks(name))
    def agrees(ranks: dict[str, int]) -> None:
        trial = replace_layers(copy.deepcopy(net), ranks)
        assert listed(unit, name).cost(ranks) == count(unit, trial, example)

    agrees()


def test_a_price_worked_out_by_hand() -> None:
    """Stride 2 and padding 1: the first factor sees all 8 rows and makes 4 columns, the second makes 4 rows."""
    net = nn.Sequential(nn.Conv2d(3, 5, 3, stride=2, padding=1))
    found = survey(net, example := [torch.zeros(1, 3, 8, 8)], (), start=0, factor=("0",))
    assert price_list("macs", net, found, example, 1).layers["0"] == Price(9 * 15 * 16, 0, 9 * 32 + 15 * 16)
    assert price_list("parameters", net, found, example, 1) == PriceList(0, {"0": Price(9 * 15 + 5, 5, 9 + 15)})


@pytest.mark.parametrize("unit", ["macs", "seconds"])
def test_a_network_and_the_random_numbers_are_left_as_they_were(unit: Unit) -> None:
    net, example, found = case("mixed")
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    random, threads = torch.get_rng_state(), torch.get_num_threads()
    price_list(unit, net, found, example, BATCH)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.get_num_threads() == threads
    assert all(parameter.grad is None for parameter in net.parameters())
    assert not any(module._forward_pre_hooks for module in net.modules())


def test_seconds_are_not_negative() -> None:
    net, example, found = case("mixed")
    found_prices = price_list("seconds", net, found, example, BATCH)
    assert list(found_prices.layers) == list(found.layers)
    assert found_prices.fixed >= 0
    for price in found_prices.layers.values():
        assert price.whole > 0
        assert price.base + price.per_rank > 0
        assert min(price.base, price.per_rank) >= 0


def test_what_is_timed_are_the_layers_at_their_inputs_and_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    net, example, found = case("mixed")
    steps: list[tuple[str, int]] = []

    def pretend(net: nn.Module, calls: Sequence[Sequence[Tensor]]) -> float:
        """A second for every scalar of the module and call: layers cost their parameters, the network 10,000."""
        assert torch.get_num_threads() == 1
        steps.append((type(net).__name__, len(calls)))
        assert all(inputs[0].shape[0] == BATCH for inputs in calls)
        assert all(bool((parameter == 0.01).all()) for parameter in net.parameters()) == isinstance(net, nn.Sequential)
        for inputs in calls:
            net(*inputs)  # the inputs fit
        return 10_000.0 if isinstance(net, Mixed) else float(len(calls) * count_parameters(net))

    monkeypatch.setattr(prices, "seconds", pretend)
    made = price_list("seconds", net, found, example, BATCH)
    parameters = listed("parameters", "mixed").layers
    for name, price in made.layers.items():
        times = 2 if name == "twice" else 1
        assert price.whole == times * parameters[name].whole
        assert (price.base, price.per_rank) == pytest.approx(
            (times * parameters[name].base, times * parameters[name].per_rank)
        )
    assert made.total == pytest.approx(10_000)
    assert steps[-1] == ("Mixed", 1)


def test_layers_that_are_alike_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []
    monkeypatch.setattr(prices, "seconds", lambda net, calls: float(timed.append(net) or 1))
    net, example, found = case("resnet18")
    made = price_list("seconds", net, found, example, BATCH)
    assert len(timed) == 7 * 3 + 1
    assert len(made.layers) == 16
    assert made.fixed == 0  # sixteen seconds of layers in a step of one


def test_layers_that_are_alike_but_get_inputs_of_other_sizes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "seconds", lambda _, calls: float(sum(inputs[0].numel() for inputs in calls)))
    net = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, padding=1))
    found = survey(net, example := [torch.zeros(1, 4, 8, 8)], (), start=0, factor=("0", "2"))
    made = price_list("seconds", net, found, example, BATCH).layers
    assert (made["0"].whole, made["2"].whole) == (BATCH * 4 * 64, BATCH * 4 * 16)


def test_a_step_reaches_every_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = []
    monkeypatch.setattr(torch.autograd, "grad", lambda outputs, leaves, *_, **__: wanted.extend(leaves))
    inputs = torch.ones(2, 3, requires_grad=True)
    prices.step(layer := nn.Linear(3, 4), [inputs])
    assert {id(leaf) for leaf in wanted} == {id(inputs), *map(id, layer.parameters())}


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 9), st.floats(0, 9))
def test_the_line_is_the_best_with_coefficients_that_are_not_negative(
    near: int, further: int, soon: float, late: float
) -> None:
    points = ((near, soon), (near + further, late))

    def error(base: float, slope: float) -> float:
        return sum((base + slope * rank - seconds) ** 2 for rank, seconds in points)

    base, slope = line(*points)
    assert min(base, slope) >= 0
    for other in (
        (base + 0.01, slope),
        (base, slope + 0.01),
        (max(0, base - 0.01), slope),
        (base, max(0, slope - 0.01)),
    ):
        assert error(base, slope) <= error(*other) + 1e-9
