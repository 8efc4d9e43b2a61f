"""What FLANC's layers cost in either form, and what a counted multiply-add in groups is worth. Never asserted.

Every composed layer of the paper's networks takes training steps alone, on a batch of the size clients train with:
once composing its weight, once in groups. The last lines say what the rule's picks lose to the faster form, with the
factor that it has and with others.

python benchmarks/flanc_forms.py
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import torch
from tasks import shapes_alone
from torch import Tensor, nn

from potluck.core.types import Context
from potluck.methods.flanc import FLANC
from potluck.parts.compose.layers import (
    GROUPED_COST,
    Bank,
    compose_layers,
    composed_macs,
    grouped_macs,
    start_basis,
    start_coefficients,
)

MODELS, WIDTHS, BATCH = ("flanc-cnn", "flanc-resnet18"), (0.25, 0.5, 0.75, 1.0), 32
STEPS, WARM = 9, 2
FACTORS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)


@dataclass(frozen=True)
class Case:
    """A layer at a width: what it costs by count and by the clock."""

    name: str
    times: int  # layers like it in the network
    composed_macs: int
    grouped_macs: int
    composed: float  # seconds of a step
    grouped: float

    def picked(self, factor: float) -> float:
        """The seconds of the form that a factor picks."""
        return self.grouped if factor * self.grouped_macs < self.composed_macs else self.composed


def cases(model: str) -> Iterator[Case]:
    """Every kind of composed layer of a network, once per width."""
    ctx = Context(shapes_alone(model, WIDTHS), 0, seed=0)
    shape, banks = ctx.task.example[0].shape[1:], FLANC().banks(ctx)
    for level in ctx.task.levels:
        net = ctx.build(level)
        seen = inputs_of(net, [bank.module for bank in banks], torch.randn(BATCH, *shape))
        alike: dict[object, list[Bank]] = {}
        for bank in banks:
            layer = net.get_submodule(bank.module)
            kind = (repr(layer), bank.size, bank.count, seen[bank.module].shape)
            alike.setdefault(kind, []).append(bank)
        for same in alike.values():
            yield measure(f"{model} {same[0].layer} {level.name}", len(same), net, same[0], seen[same[0].module])


def inputs_of(net: nn.Module, layers: list[str], batch: Tensor) -> dict[str, Tensor]:
    """What each layer reads."""
    seen: dict[str, Tensor] = {}
    for name in layers:
        net.get_submodule(name).register_forward_pre_hook(
            lambda module, inputs, name=name: seen.__setitem__(name, inputs[0].detach())
        )
    with torch.no_grad():
        net(batch)
    return seen


def measure(name: str, times: int, net: nn.Module, bank: Bank, inputs: Tensor) -> Case:
    """Both forms of one layer."""
    layer = net.get_submodule(bank.module)
    assert isinstance(layer, nn.Conv2d)
    shape = tuple(layer.weight.shape)
    outputs = layer(inputs).numel() // BATCH
    alone = Bank("0", "0", "weight", bank.size, bank.count, bank.kernel)
    seconds = [step_time(layer, alone, inputs, grouped) for grouped in ([], ["0"])]
    counted = [rule(bank, shape, outputs, BATCH) for rule in (composed_macs, grouped_macs)]
    return Case(name, times, counted[0], counted[1], seconds[0], seconds[1])


def step_time(layer: nn.Conv2d, bank: Bank, inputs: Tensor, grouped: list[str]) -> float:
    """The median time of a forward and a backward pass, down to the layer's inputs."""
    fresh = nn.Conv2d(
        layer.in_channels, layer.out_channels, bank.kernel, layer.stride, layer.padding, bias=layer.bias is not None
    )
    net = compose_layers(nn.Sequential(fresh), [bank], grouped)
    with torch.no_grad():
        basis, coefficients = (net.get_parameter(name) for name in bank.names)
        basis.copy_(start_basis(basis))
        coefficients.copy_(start_coefficients(coefficients, "uniform"))
    inputs = inputs.clone().requires_grad_()
    gradient = torch.randn_like(net(inputs).detach())
    taken = []
    for _ in range(WARM + STEPS):
        started = time.perf_counter()
        net(inputs).backward(gradient)
        taken.append(time.perf_counter() - started)
        net.zero_grad()
        inputs.grad = None
    return median(taken[WARM:])


def main() -> None:
    """One line per kind of layer and width, then what several factors would cost."""
    torch.set_num_threads(1)
    print(f"{'layer':<36}{'like it':>8}{'composed':>11}{'grouped':>11}{'MACs':>7}{'per MAC':>9}  faster    picked")
    found = []
    for model in MODELS:
        for case in cases(model):
            found.append(case)
            fewer, slower = case.composed_macs / case.grouped_macs, case.grouped / case.composed
            faster = "grouped" if slower < 1 else "composed"
            picked = "grouped" if fewer > GROUPED_COST else "composed"
            print(
                f"{case.name:<36}{case.times:>8}{case.composed * 1e3:>8.2f} ms{case.grouped * 1e3:>8.2f} ms"
                f"{fewer:>6.2f}x{slower * fewer:>8.2f}x  {faster:<10}{picked}"
            )
    worth = median(c.grouped / c.grouped_macs / (c.composed / c.composed_macs) for c in found)
    print(f"\na multiply-add in groups takes {worth:.2f} times as long as one that uses a composed weight (median)")
    best = sum(case.times * min(case.composed, case.grouped) for case in found)
    for factor in sorted({*FACTORS, GROUPED_COST}):
        lost = sum(case.times * case.picked(factor) for case in found) / best - 1
        mark = "  <- in use" if factor == GROUPED_COST else ""
        print(f"factor {factor:<5g} loses {lost:>6.1%} to the faster form{mark}")


if __name__ == "__main__":
    main()
