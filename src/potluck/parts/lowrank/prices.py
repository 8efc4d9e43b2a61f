"""What each layer of a network costs, whole or in factors: scalars, multiply-accumulates, bytes or seconds.

A layer in factors of rank r is two layers with r channels between them, so whatever is counted is affine in r.
Counts are taken from the very layers that stand in a network in factors: they agree with a count of that network.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from potluck.core.copying import copied
from potluck.core.inputs import Inputs, call, mapped, repeated, tensors_of
from potluck.core.logits import logits_of
from potluck.core.observe import Given, observe
from potluck.core.random import seeded
from potluck.core.tensors import size_in_bytes, state_of
from potluck.core.threads import one_thread
from potluck.parts.cost.level import count_macs, count_parameters, flops
from potluck.parts.lowrank.layers import Unrolled, factored
from potluck.parts.lowrank.survey import Survey

Unit = Literal["parameters", "macs", "bytes", "seconds"]

# The fastest of a few training steps counts, as other processes only slow one down: two steps, more if time is left.
REPEATS, ENOUGH_SECONDS = 4, 0.05


@dataclass(frozen=True)
class Price:
    """What a layer costs: whole, or base + per_rank · r in factors of rank r (of each group)."""

    whole: float
    base: float
    per_rank: float

    def at(self, rank: int | None) -> float:
        """The price in factors of a rank, or whole."""
        return self.whole if rank is None else self.base + self.per_rank * rank


@dataclass(frozen=True)
class PriceList:
    """The layers that can be put into factors, in the order in which they run, and what the rest costs."""

    fixed: float
    layers: Mapping[str, Price]

    @property
    def total(self) -> float:
        """The price of the whole network."""
        return self.cost({})

    def cost(self, ranks: Mapping[str, int]) -> float:
        """The price of the network with these layers in factors and all else whole."""
        return self.fixed + sum(price.at(ranks.get(name)) for name, price in self.layers.items())


def price_list(unit: Unit, net: nn.Module, survey: Survey, example: Inputs, batch_size: int) -> PriceList:
    """The price of every layer of a survey; multiply-accumulates are of one example, seconds of a training step."""
    batch_size = max(2, batch_size)  # batch norm without statistics cannot run on one
    names = list(survey.layers)
    if unit == "parameters":
        return counted(net, names, count_parameters(net), lambda layer, _: count_parameters(layer))
    if unit == "bytes":
        return counted(net, names, size_in_bytes(state_of(net)), lambda layer, _: size_in_bytes(state_of(layer)))
    inputs = repeated(example, batch_size)
    calls = calls_of(net, inputs, names)
    if unit == "macs":
        total = count_macs(net, example, batch_size)
        return counted(net, names, total, lambda layer, name: macs(layer, calls[name]) / batch_size)
    return measured(net, survey.layers, inputs, calls)


def calls_of(net: nn.Module, inputs: Inputs, names: Iterable[str]) -> dict[str, list[Tensor]]:
    """What a network gives to each of these layers, one tensor without content for every call."""
    try:
        return heard(copied(net).to("meta"), mapped(lambda tensor: tensor.to("meta"), inputs), names)
    except (NotImplementedError, RuntimeError):  # it must see real values
        return heard(copied(net), inputs, names)


def heard(net: nn.Module, inputs: Inputs, names: Iterable[str]) -> dict[str, list[Tensor]]:
    """What this copy of a network gives to its layers when it runs."""
    calls: dict[str, list[Tensor]] = {name: [] for name in names}

    def listen(name: str, layer: nn.Module, given: Given) -> None:
        calls[name].append(given[0].to("meta"))

    observe(net, inputs, {name: net.get_submodule(name) for name in calls}, before=listen)
    return calls


def counted(net: nn.Module, names: Iterable[str], total: float, count: Callable[[nn.Module, str], float]) -> PriceList:
    """Prices that follow from counts at two ranks; on the meta device, where nothing is computed."""
    layers = {}
    for name in names:
        layer: Any = copy.deepcopy(net.get_submodule(name)).to("meta")
        one, two = (count(factored(layer, rank), name) for rank in (1, 2))
        layers[name] = Price(whole=count(layer, name), base=2 * one - two, per_rank=two - one)
    return PriceList(total - sum(price.whole for price in layers.values()), layers)


def macs(layer: nn.Module, calls: Iterable[Tensor]) -> float:
    """Multiply-accumulates of all calls of a layer, for the whole batch."""
    return sum(flops(layer, inputs) for inputs in calls) / 2


def measured(
    net: nn.Module, layers: Mapping[str, Unrolled], inputs: Inputs, calls: Mapping[str, Sequence[Tensor]]
) -> PriceList:
    """Seconds of each layer's training step on one thread; what the network takes beyond their sum is fixed.

    Equal layers with inputs of equal size share one price, measured once.
    """
    known: dict[object, Price] = {}
    prices = {}
    with one_thread(), seeded(0, "prices"):
        for name, unrolled in layers.items():
            layer: Any = copy.deepcopy(net.get_submodule(name))
            given = [torch.ones(call.shape, dtype=call.dtype, requires_grad=True) for call in calls[name]]
            alike = (repr(layer), layer.weight.dtype, *(call.shape for call in given))
            if alike not in known:
                known[alike] = timed(layer, unrolled, given)
            prices[name] = known[alike]
        step = seconds(copied(net).train(), [inputs])
    return PriceList(max(0.0, step - sum(price.whole for price in prices.values())), prices)


def timed(layer: nn.Conv2d | nn.Linear, unrolled: Unrolled, calls: Sequence[Tensor]) -> Price:
    """The seconds of a layer: whole, and in factors about half and an eighth as large."""
    many = max(2, unrolled.size() // unrolled.size(1) // 2)
    few = max(1, many // 4)
    each = [[call] for call in calls]
    at_few, at_many = (seconds(filled(factored(layer, rank)), each) for rank in (few, many))
    return Price(seconds(layer, each), *line((few, at_few), (many, at_many)))


def filled(factors: nn.Module) -> nn.Module:
    """Factors with weights: uninitialised memory may hold denormal numbers, which are slow."""
    for parameter in factors.parameters():
        nn.init.constant_(parameter, 0.01)
    return factors


def line(left: tuple[int, float], right: tuple[int, float]) -> tuple[float, float]:
    """argmin_{a, b ≥ 0} Σ_i (a + b r_i - t_i)²: a and b from two points (r, t), the left one first."""
    (near, soon), (far, late) = left, right
    slope = (late - soon) / (far - near)
    if slope <= 0:
        return (soon + late) / 2, 0.0
    if soon < slope * near:
        return 0.0, (near * soon + far * late) / (near**2 + far**2)
    return soon - slope * near, slope


def seconds(net: nn.Module, calls: Sequence[Sequence[Tensor]]) -> float:
    """The time of the fastest of a few training steps, in which a network is called with each of these inputs.

    It is processor time of the one thread that computes, which does not pass while other processes run.
    """
    times: list[float] = []
    while len(times) < 2 or (len(times) < REPEATS and sum(times) < ENOUGH_SECONDS):
        started = time.thread_time()
        for inputs in calls:
            step(net, inputs)
        times.append(time.thread_time() - started)
    return min(times)


def step(net: nn.Module, inputs: Inputs) -> None:
    """Forward and backward, with gradients for parameters and for inputs that want them."""
    output = call(net, inputs)
    outputs = [each for each in tensors_of(output) or [logits_of(output)] if each.requires_grad]
    leaves = [leaf for leaf in (*net.parameters(), *tensors_of(inputs)) if leaf.requires_grad]
    torch.autograd.grad(outputs, leaves, [torch.ones_like(each) for each in outputs], allow_unused=True)
