"""HeteroFL's network for MNIST."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

from torch import nn

from potluck.core.errors import ModelError
from potluck.models.norms import Norm, check_norm, norm_layer
from potluck.models.scaling import Rounding, Size, widths
from potluck.models.shapes import image_shape


def heterofl_cnn(
    width: float = 1.0,
    *,
    shape: tuple[Size, ...] = (1, 28, 28),
    classes: Size = 10,
    hidden: tuple[Size, ...] = (64, 128, 256, 512),
    norm: Norm = "bn",
    rounding: Rounding = "ceil",
) -> nn.Module:
    """3x3 convolutions with batch or another norm, halved by max pooling in between, averaged into a linear head.

    >>> sum(p.numel() for p in heterofl_cnn(1 / 16).parameters())
    6594
    """
    channels, rows, columns = image_shape("heterofl-cnn", shape, smallest=2 ** (len(hidden) - 1))
    if not hidden:
        raise ModelError("hidden is empty, but heterofl-cnn needs the channels of at least one convolution")
    narrow = widths(width, hidden, rounding)
    positions = [(rows // 2**halvings) * (columns // 2**halvings) for halvings in range(len(hidden))]
    check_norm(norm, width, zip(narrow, positions, strict=True))
    layers: list[nn.Module] = []
    for inner, outer in pairwise([channels, *narrow]):
        if layers:
            layers.append(nn.MaxPool2d(2))
        layers += [nn.Conv2d(inner, outer, 3, padding=1), norm_layer(norm, outer), nn.ReLU()]
    head = nn.Linear(outer, classes)
    nn.init.zeros_(head.bias)
    return nn.Sequential(
        OrderedDict(body=nn.Sequential(*layers), pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), head=head)
    )
