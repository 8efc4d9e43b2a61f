"""HeteroFL's network for CIFAR-10: a residual network whose blocks normalise before they convolve."""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import accumulate
from operator import mul

from torch import Tensor, nn

from potluck.models.norms import Norm, check_norm, norm_layer
from potluck.models.scaling import Depth, Rounding, Size, widths
from potluck.models.shapes import image_shape

WIDTHS = (64, 128, 256, 512)
STRIDES = (1, 2, 2, 2)


class PreActivationBlock(nn.Module):
    """conv2(relu(norm2(conv1(a)))) + shortcut with a = relu(norm1(x))."""

    def __init__(self, inner: int, outer: int, stride: int, norm: Norm = "bn") -> None:
        super().__init__()
        self.norm1 = norm_layer(norm, inner)
        self.relu1 = nn.ReLU()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        self.norm2 = norm_layer(norm, outer)
        self.relu2 = nn.ReLU()
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        reshapes = stride != 1 or inner != outer
        self.shortcut = nn.Conv2d(inner, outer, 1, stride, bias=False) if reshapes else None

    def forward(self, x: Tensor) -> Tensor:
        active = self.relu1(self.norm1(x))
        # Only a shortcut that has to change the shape sees the normalised input: the identity carries x itself.
        carried = x if self.shortcut is None else self.shortcut(active)
        added: Tensor = self.conv2(self.relu2(self.norm2(self.conv1(active))))
        return added + carried


def preresnet18(
    width: float = 1.0,
    *,
    shape: tuple[Size, ...] = (3, 32, 32),
    classes: Size = 10,
    blocks: tuple[Depth, ...] = (1, 1, 1, 2),
    norm: Norm = "bn",
    rounding: Rounding = "ceil",
) -> nn.Module:
    """Pre-activation ResNet; the default blocks give the paper's sizes, (2, 2, 2, 2) is a true ResNet-18.

    >>> sum(p.numel() for p in preresnet18(1 / 16).parameters())
    38350
    """
    channels, rows, columns = image_shape("preresnet18", shape)
    narrow = widths(width, WIDTHS, rounding)
    positions = [math.ceil(rows / by) * math.ceil(columns / by) for by in accumulate(STRIDES, mul)]
    check_norm(norm, width, zip(narrow, positions, strict=True))
    inner = narrow[0]
    body: list[nn.Module] = []
    for outer, stride, count in zip(narrow, STRIDES, blocks, strict=True):
        for number in range(count):
            body.append(PreActivationBlock(inner, outer, 1 if number else stride, norm))
            inner = outer
    head = nn.Linear(inner, classes)
    nn.init.zeros_(head.bias)
    return nn.Sequential(
        OrderedDict(
            stem=nn.Conv2d(channels, narrow[0], 3, padding=1, bias=False),
            body=nn.Sequential(*body),
            norm=norm_layer(norm, inner),
            relu=nn.ReLU(),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            head=head,
        )
    )
