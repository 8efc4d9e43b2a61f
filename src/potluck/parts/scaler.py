"""The Scaler module of HeteroFL, put into a plain network by forward hooks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from torch import Tensor, nn

SCALED = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.Linear,
    nn.Embedding,
)


@dataclass(frozen=True)
class Divide:
    """y = x / r in training, x in evaluation (HeteroFL, sec. 2.2)."""

    ratio: float

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output / self.ratio if module.training else output


def scaled_layers(net: nn.Module, narrowed: Collection[str], head: Collection[str]) -> Iterator[nn.Module]:
    """The layers that are scaled: those that own a narrowed tensor, the head aside."""
    for name, module in net.named_modules():
        owned = {f"{name}.{own}" for own, _ in module.named_parameters(recurse=False)}
        if isinstance(module, SCALED) and owned & set(narrowed) and not owned & set(head):
            yield module


def scale_outputs(net: nn.Module, ratio: float, narrowed: Collection[str], head: Collection[str]) -> nn.Module:
    """Divide the output of every scaled layer by the ratio to the global width, in training.

    Division is linear, so scaling each layer as it writes to a residual stream is the same as
    the authors' scaling wherever the stream is read.
    """
    for layer in scaled_layers(net, narrowed, head):
        layer.register_forward_hook(Divide(ratio))
    return net


def fold_scaling(net: nn.Module, ratio: float, narrowed: Collection[str], head: Collection[str]) -> nn.Module:
    """Divide the weights instead of the outputs, (W x + b) / r = (W/r) x + b/r: a plain network, the same function."""
    for layer in scaled_layers(net, narrowed, head):
        for parameter in layer.parameters(recurse=False):
            parameter.data.div_(ratio)
    return net
