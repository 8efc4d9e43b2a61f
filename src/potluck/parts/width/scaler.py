"""The Scaler module of HeteroFL, put into a plain network by forward hooks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from potluck.core.names import own_name
from potluck.core.networks import unshare

SCALED = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.Linear,
    nn.Embedding,
    nn.MultiheadAttention,
)


@dataclass(frozen=True)
class Divide:
    """y = x / r in training, x in evaluation (HeteroFL, sec. 2.2)."""

    ratio: float

    def __call__(self, module: nn.Module, inputs: object, output: Any) -> Any:
        if not module.training:
            return output
        if isinstance(output, tuple):  # attention also returns its weights
            return output[0] / self.ratio, *output[1:]
        return output / self.ratio


def scaled_layers(
    net: nn.Module, narrowed: Collection[str], head: Collection[str]
) -> Iterator[tuple[nn.Module, list[nn.Parameter]]]:
    """The layers that are scaled, each with the parameters its output is linear in.

    These are the layers that own a narrowed tensor, except the head and layers that share a weight with it.
    """
    spared = {id(net.get_parameter(name)) for name in head}
    for name, module in net.named_modules():
        last = module.out_proj if isinstance(module, nn.MultiheadAttention) else module
        if not isinstance(module, SCALED) or isinstance(module, NonDynamicallyQuantizableLinear):
            continue  # the latter is attention's own output layer, which is never called
        owned = {own_name(name, own) for own, _ in module.named_parameters()}
        parameters = list(last.parameters(recurse=False))
        if owned & set(narrowed) and not spared & {id(parameter) for parameter in parameters}:
            yield module, parameters


def scale_outputs(net: nn.Module, ratio: float, narrowed: Collection[str], head: Collection[str]) -> nn.Module:
    """Divide the output of every scaled layer by the ratio to the global width, in training.

    Division is linear, so scaling each layer as it writes to a residual stream is the same as
    the authors' scaling wherever the stream is read.
    """
    for layer, _ in scaled_layers(net, narrowed, head):
        layer.register_forward_hook(Divide(ratio))
    return net


def fold_scaling(net: nn.Module, ratio: float, narrowed: Collection[str], head: Collection[str]) -> nn.Module:
    """Divide the weights instead of the outputs, (W x + b) / r = (W/r) x + b/r: a plain network, the same function."""
    unshare(net)
    shared = {id(p): p for _, parameters in scaled_layers(net, narrowed, head) for p in parameters}
    for parameter in shared.values():
        parameter.data.div_(ratio)
    return net
