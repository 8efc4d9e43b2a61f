"""FLANC's networks at width p, as plain networks: its composition is put into their convolutions later.

Departures: none from the authors' code, whose stem keeps all of its 64 channels at every width.
The paper's own "p-width" column for ResNet-18 also narrows the stem: that network is `resnet18`.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from potluck.models.resnet import WIDTHS, assemble
from potluck.models.scaling import Rounding, Size, widths
from potluck.models.shapes import image_shape

STEM = 64
# (R1, R2): the authors give both convolutions of a block the basis of its first, whose inputs may be half as wide.
SHARED_BASES = {"layer2.0.conv2": (8, 32), "layer3.0.conv2": (16, 64), "layer4.0.conv2": (32, 128)}


def flanc_cnn(
    width: float = 1.0, *, shape: tuple[Size, ...] = (1, 28, 28), classes: Size = 10, rounding: Rounding = "round"
) -> nn.Module:
    """A stem of fixed width, two 3x3 convolutions each halved by max pooling, a linear head on all positions.

    >>> sum(p.numel() for p in flanc_cnn(0.25).parameters())
    43978
    """
    channels, rows, columns = image_shape("flanc-cnn", shape, smallest=4)
    (outer,) = widths(width, [128], rounding)
    return nn.Sequential(
        OrderedDict(
            stem=nn.Conv2d(channels, STEM, 3, padding=1),
            conv1=nn.Conv2d(STEM, outer, 3, padding=1, bias=False),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(outer, outer, 3, padding=1, bias=False),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            head=nn.Linear(outer * (rows // 4) * (columns // 4), classes),
        )
    )


def flanc_resnet18(
    width: float = 1.0, *, shape: tuple[Size, ...] = (3, 32, 32), classes: Size = 10, rounding: Rounding = "round"
) -> nn.Module:
    """ResNet-18 whose stem has 64 channels at every width, so that a narrow layer1 needs a shortcut of its own.

    >>> sum(p.numel() for p in flanc_resnet18().parameters())
    11173962
    """
    channels, _, _ = image_shape("flanc-resnet18", shape)
    net = assemble(channels, STEM, widths(width, WIDTHS, rounding), (2, 2, 2, 2), classes)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    net.neural_basis = SHARED_BASES
    net.neural_coefficients = "normal"
    return net
