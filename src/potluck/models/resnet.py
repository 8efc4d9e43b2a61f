"""ResNets for small images, as FedHM and FLANC slim them: a 3x3 stem and no max pooling.

Their weights start as FedHM's authors draw them. That belongs to the learning rate: under batch norm, weights half as
large learn four times as fast at the same rate, and PyTorch's own start is less than half as large.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal, get_args

from torch import Tensor, nn

from potluck.core.errors import ModelError
from potluck.models.scaling import Rounding, Size, widths
from potluck.models.shapes import image_shape

WIDTHS = (64, 128, 256, 512)
STRIDES = (1, 2, 2, 2)

Start = Literal["kaiming", "torch"]


class BasicBlock(nn.Module):
    """relu(norm2(conv2(relu(norm1(conv1(x))))) + shortcut(x))."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.relu2 = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        added = self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(x)))))
        out: Tensor = self.relu2(added + self.shortcut(x))
        return out


class ResNet(nn.Sequential):
    """Layers one after the other, and where its paper begins to put them into factors of low rank."""

    low_rank_from: str
    neural_basis: dict[str, tuple[int, int]]  # sizes of the bases that its paper composes layers of
    neural_coefficients: str  # how the coefficients of such bases start


def stage(inner: int, outer: int, stride: int, count: int) -> nn.Module:
    """`count` blocks, of which the first changes width and resolution."""
    rest = [BasicBlock(outer, outer, 1) for _ in range(count - 1)]
    return nn.Sequential(BasicBlock(inner, outer, stride), *rest)


def assemble(channels: int, stem: int, outer: Sequence[int], blocks: Sequence[int], classes: int) -> ResNet:
    """A network of a stem, four stages called layer1 to layer4, an average and a linear head."""
    stages = [stage(*sizes) for sizes in zip([stem, *outer[:-1]], outer, STRIDES, blocks, strict=True)]
    return ResNet(
        OrderedDict(
            stem=nn.Sequential(nn.Conv2d(channels, stem, 3, padding=1, bias=False), nn.BatchNorm2d(stem), nn.ReLU()),
            **{f"layer{number}": layer for number, layer in enumerate(stages, start=1)},
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            head=nn.Linear(outer[-1], classes),
        )
    )


def four_stages(hidden: Sequence[int]) -> Sequence[int]:
    """The channels of the four stages, if there are four."""
    if len(hidden) != len(WIDTHS):
        raise ModelError(f"hidden is {tuple(hidden)}, but a ResNet has the channels of {len(WIDTHS)} stages")
    return hidden


def started(net: ResNet, start: Start) -> ResNet:
    """The network with weights from N(0, 2/n), n inputs per output, or as PyTorch drew them: U(±1/√n)."""
    if start not in get_args(Start):
        raise ModelError(f"start is '{start}', but it should be one of {', '.join(get_args(Start))}")
    for module in net.modules() if start == "kaiming" else ():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
    return net


def resnet18(
    width: float = 1.0,
    *,
    shape: tuple[Size, ...] = (3, 32, 32),
    classes: Size = 10,
    hidden: tuple[Size, ...] = WIDTHS,
    rounding: Rounding = "round",
    start: Start = "kaiming",
) -> nn.Module:
    """ResNet-18 with 2, 2, 2, 2 blocks.

    >>> sum(p.numel() for p in resnet18(0.35).parameters())
    1373160
    """
    channels, _, _ = image_shape("resnet18", shape)
    narrow = widths(width, four_stages(hidden), rounding)
    net = started(assemble(channels, narrow[0], narrow, (2, 2, 2, 2), classes), start)
    net.low_rank_from = "layer1.1"  # FedHM, tables 6 and 7
    return net


def resnet34(
    width: float = 1.0,
    *,
    shape: tuple[Size, ...] = (3, 32, 32),
    classes: Size = 100,
    hidden: tuple[Size, ...] = WIDTHS,
    rounding: Rounding = "round",
    start: Start = "kaiming",
) -> nn.Module:
    """ResNet-34 with 3, 4, 6, 3 blocks.

    >>> sum(p.numel() for p in resnet34(0.4).parameters())
    3423974
    """
    channels, _, _ = image_shape("resnet34", shape)
    narrow = widths(width, four_stages(hidden), rounding)
    net = started(assemble(channels, narrow[0], narrow, (3, 4, 6, 3), classes), start)
    net.low_rank_from = "layer3"  # FedHM, tables 6 and 7
    return net
