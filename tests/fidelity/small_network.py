"""A network with one of everything that widths cut, as a module and as a formula."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch.nn.functional as F
from by_hand import Places, Weights, batch_norm
from torch import Tensor, nn

FULL = (10, 7, 9)  # channels of the two convolutions and the linear layer: no width divides them
KERNEL = [0, 1, 2]
CLASSES = [0, 1, 2, 3]
HEAD = ("head.weight", "head.bias")

Norm = Callable[[str, Tensor], Tensor]


def counts(ratio: float) -> list[int]:
    """⌈r · c⌉ channels of every layer."""
    return [math.ceil(round(ratio * full, 9)) for full in FULL]


class Small(nn.Module):
    """Two convolutions with batch norm, a linear layer without, and a head."""

    def __init__(self, width: float) -> None:
        super().__init__()
        first, second, third = counts(width)
        self.conv1 = nn.Conv2d(1, first, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(first)
        self.conv2 = nn.Conv2d(first, second, 3, stride=2, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(second)
        self.linear = nn.Linear(second, third)
        self.head = nn.Linear(third, len(CLASSES))

    def forward(self, pictures: Tensor) -> Tensor:
        features = self.norm1(self.conv1(pictures)).relu()
        features = self.norm2(self.conv2(features)).relu().mean((2, 3))
        logits: Tensor = self.head(self.linear(features).relu())
        return logits


def logits_of(weights: Weights, pictures: Tensor, ratio: float = 1.0, norm: Norm | None = None) -> Tensor:
    """What the network says, each layer but the head divided by the ratio (HeteroFL's Scaler)."""
    norm = norm or (lambda name, x: batch_norm(x, weights[f"{name}.weight"], weights[f"{name}.bias"]))
    x = F.conv2d(pictures, weights["conv1.weight"], weights["conv1.bias"], padding=1) / ratio
    x = norm("norm1", x).clamp(min=0)
    x = F.conv2d(x, weights["conv2.weight"], stride=2, padding=1) / ratio
    x = norm("norm2", x).clamp(min=0).mean((2, 3))
    x = (x @ weights["linear.weight"].T + weights["linear.bias"]) / ratio
    return x.clamp(min=0) @ weights["head.weight"].T + weights["head.bias"]


def places(first: list[int], second: list[int], third: list[int]) -> Places:
    """Where in the whole network a part with these channels lies."""
    return {
        "conv1.weight": (first, [0], KERNEL, KERNEL),
        "conv1.bias": (first,),
        "norm1.weight": (first,),
        "norm1.bias": (first,),
        "conv2.weight": (second, first, KERNEL, KERNEL),
        "norm2.weight": (second,),
        "norm2.bias": (second,),
        "linear.weight": (third, second),
        "linear.bias": (third,),
        "head.weight": (CLASSES, third),
        "head.bias": (CLASSES,),
    }
