"""Which way suits a network, from what can be counted: no clock decides, so every machine decides alike.

The figures below were measured once (`benchmarks/counted.py`) and are part of the code.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from potluck.core.inputs import Inputs, repeated
from potluck.core.observe import Given, observe
from potluck.core.ways.way import CHANNELS_LAST, PLAIN

MOST_STACKED = 32  # clients
STACKED_SCALARS = 1 << 16  # of a network's parameters; beyond, the time of a step is that of memory,
STACKED_MACS = 1 << 22  # or of computing: multiply-adds of a batch's forward pass
LAID_OUT_MACS = 1 << 27  # of the same in convolutions; below, the layout gains less than it costs to see to it
LAID_OUT_SHARE = 0.5  # of all multiply-adds


@dataclass(frozen=True)
class Load:
    """What a training step of a level is, counted."""

    examples: int  # in a batch
    macs: int  # of an example's forward pass
    together: int = 1  # how many clients can be trained at once


def ways_for(net: nn.Module, example: Inputs, load: Load) -> list[str]:
    """The ways that should be faster than the plain one, the fastest first; the plain one is the last.

    Swift operations alone are no reason for another way: a network that has much to gain from them has convolutions.
    """
    stack, convolved = stack_for(net, load), convolution_macs(net, example)
    found = {
        f"stacked-{stack}": stack > 1,
        CHANNELS_LAST: load.examples * convolved >= LAID_OUT_MACS and convolved >= LAID_OUT_SHARE * load.macs,
        PLAIN: True,
    }
    return [name for name, pays in found.items() if pays]


def stack_for(net: nn.Module, load: Load) -> int:
    """How many clients to train at once: several if a network is so small that a step is calling, not computing."""
    size = sum(parameter.numel() for parameter in net.parameters())
    small = size <= STACKED_SCALARS and load.examples * load.macs <= STACKED_MACS
    return min(load.together, MOST_STACKED) if small else 1


def convolution_macs(net: nn.Module, example: Inputs) -> int:
    """Multiply-adds of an example's forward pass in convolutions of images."""
    layers = {name: module for name, module in net.named_modules() if isinstance(module, nn.Conv2d)}
    found = [0]

    def count(name: str, layer: nn.Module, given: Given, output: object) -> None:
        assert isinstance(layer, nn.Conv2d)
        if isinstance(output, Tensor):
            high, wide = layer.kernel_size
            found.append(output.numel() // len(output) * (layer.in_channels // layer.groups) * high * wide)

    if layers:
        observe(net, repeated(example, 2), layers, after=count)
    return sum(found)
