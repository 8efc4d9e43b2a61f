"""The networks of LG-FedAvg, which HeteroFL's tables quote for their baselines. They give logits, not softmax."""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import pairwise

from torch import nn

from potluck.models.scaling import Rounding, Size, widths
from potluck.models.shapes import image_shape


def lg_mlp(
    width: float = 1.0, *, shape: tuple[Size, ...] = (1, 28, 28), classes: Size = 10, rounding: Rounding = "ceil"
) -> nn.Module:
    """Fully connected: all inputs, 512, 256, 256, 128, classes.

    >>> sum(p.numel() for p in lg_mlp().parameters())
    633226
    """
    sizes = [math.prod(shape), *widths(width, (512, 256, 256, 128), rounding)]
    layers: dict[str, nn.Module] = {"flatten": nn.Flatten()}
    for number, (inner, outer) in enumerate(pairwise(sizes), start=1):
        layers |= {f"fc{number}": nn.Linear(inner, outer), f"relu{number}": nn.ReLU()}
    return nn.Sequential(OrderedDict(**layers, head=nn.Linear(sizes[-1], classes)))


def lg_cnn(
    width: float = 1.0, *, shape: tuple[Size, ...] = (3, 32, 32), classes: Size = 10, rounding: Rounding = "ceil"
) -> nn.Module:
    """Two 5x5 convolutions of 6 and 16 channels with max pooling, then fully connected 120, 100, classes.

    >>> sum(p.numel() for p in lg_cnn().parameters())
    64102
    """
    channels, rows, columns = image_shape("lg-cnn", shape, smallest=16)
    narrow, wide, first, second = widths(width, (6, 16, 120, 100), rounding)
    positions = pooled(pooled(rows)) * pooled(pooled(columns))
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, narrow, 5),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(narrow, wide, 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(wide * positions, first),
            relu3=nn.ReLU(),
            fc2=nn.Linear(first, second),
            relu4=nn.ReLU(),
            head=nn.Linear(second, classes),
        )
    )


def pooled(side: int) -> int:
    """The side of an image after a 5x5 convolution without padding and a 2x2 max pooling."""
    return (side - 4) // 2
