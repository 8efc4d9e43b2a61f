"""DenseNet: every layer reads the concatenation of all before it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DenseLayer(nn.Module):
    """A bottleneck that adds `growth` channels to those it got."""

    def __init__(self, in_channels: int, growth: int, bn_size: int = 4) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, bn_size * growth, kernel_size=1, bias=False)
        self.norm2 = nn.BatchNorm2d(bn_size * growth)
        self.conv2 = nn.Conv2d(bn_size * growth, growth, kernel_size=3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        new = self.conv1(F.relu(self.norm1(x)))
        new = self.conv2(F.relu(self.norm2(new)))
        return torch.cat([x, new], dim=1)


class Transition(nn.Sequential):
    """Half the channels, half the resolution."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.add_module("norm", nn.BatchNorm2d(in_channels))
        self.add_module("relu", nn.ReLU(inplace=True))
        self.add_module("conv", nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False))
        self.add_module("pool", nn.AvgPool2d(kernel_size=2, stride=2))


class DenseNet(nn.Module):
    """Dense blocks with transitions between them."""

    def __init__(self, growth: int, blocks: tuple[int, ...], num_classes: int = 10) -> None:
        super().__init__()
        channels = 2 * growth
        self.features = nn.Sequential()
        self.features.add_module("conv0", nn.Conv2d(3, channels, kernel_size=3, padding=1, bias=False))
        for i, count in enumerate(blocks):
            layers = [DenseLayer(channels + j * growth, growth) for j in range(count)]
            self.features.add_module(f"denseblock{i + 1}", nn.Sequential(*layers))
            channels += count * growth
            if i + 1 < len(blocks):
                self.features.add_module(f"transition{i + 1}", Transition(channels, channels // 2))
                channels //= 2
        self.features.add_module("norm_last", nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.features(x), inplace=True)
        out = torch.flatten(F.adaptive_avg_pool2d(out, (1, 1)), 1)
        return self.classifier(out)


def densenet(width: float = 1.0) -> DenseNet:
    return DenseNet(growth=int(8 * width), blocks=(4, 4, 6))
