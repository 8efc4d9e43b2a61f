"""A network of Inception modules: four branches side by side, concatenated."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConvBNReLU(nn.Module):
    """A convolution with batch norm and ReLU."""

    def __init__(self, in_channels: int, out_channels: int, **kwargs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **kwargs)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.bn(self.conv(x)))


class Inception(nn.Module):
    """1 x 1, 3 x 3, 5 x 5 and pool branches of widths of their own."""

    def __init__(self, in_channels: int, b1: int, b2: tuple[int, int], b3: tuple[int, int], b4: int) -> None:
        super().__init__()
        self.branch1 = ConvBNReLU(in_channels, b1, kernel_size=1)
        self.branch2 = nn.Sequential(
            ConvBNReLU(in_channels, b2[0], kernel_size=1), ConvBNReLU(b2[0], b2[1], kernel_size=3, padding=1)
        )
        self.branch3 = nn.Sequential(
            ConvBNReLU(in_channels, b3[0], kernel_size=1), ConvBNReLU(b3[0], b3[1], kernel_size=5, padding=2)
        )
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(kernel_size=3, stride=1, padding=1), ConvBNReLU(in_channels, b4, kernel_size=1)
        )
        self.out_channels = b1 + b2[1] + b3[1] + b4

    def forward(self, x: Tensor) -> Tensor:
        outputs = [branch(x) for branch in (self.branch1, self.branch2, self.branch3, self.branch4)]
        return torch.cat(outputs, 1)


class GoogLeNet(nn.Module):
    """A stem and two stages of two modules each."""

    def __init__(self, unit: int, num_classes: int = 10) -> None:
        super().__init__()
        u = unit
        self.stem = nn.Sequential(
            ConvBNReLU(3, 4 * u, kernel_size=3, padding=1),
            ConvBNReLU(4 * u, 8 * u, kernel_size=3, padding=1),
            nn.MaxPool2d(2),
        )
        self.a1 = Inception(8 * u, 4 * u, (4 * u, 6 * u), (u, 2 * u), 2 * u)
        self.a2 = Inception(self.a1.out_channels, 6 * u, (6 * u, 8 * u), (2 * u, 4 * u), 3 * u)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.b1 = Inception(self.a2.out_channels, 8 * u, (6 * u, 10 * u), (u, 3 * u), 3 * u)
        self.b2 = Inception(self.b1.out_channels, 10 * u, (8 * u, 12 * u), (2 * u, 4 * u), 4 * u)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(self.b2.out_channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a2(self.a1(self.stem(x)))
        x = self.b2(self.b1(self.pool(x)))
        return self.fc(self.dropout(x.mean([2, 3])))


def googlenet(width: float = 1.0) -> GoogLeNet:
    return GoogLeNet(unit=int(4 * width))
