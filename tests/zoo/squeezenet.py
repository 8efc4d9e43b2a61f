"""SqueezeNet: fire modules, and a last convolution that makes the classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Fire(nn.Module):
    """A squeeze, then two kinds of expansion side by side."""

    def __init__(self, inplanes: int, squeeze: int, expand1x1: int, expand3x3: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inplanes, squeeze, kernel_size=1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeeze, expand1x1, kernel_size=1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeeze, expand3x3, kernel_size=3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze_activation(self.squeeze(x))
        small = self.expand1x1_activation(self.expand1x1(x))
        large = self.expand3x3_activation(self.expand3x3(x))
        return torch.cat([small, large], 1)


class SqueezeNet(nn.Module):
    """No linear layer at all."""

    def __init__(self, base: int, num_classes: int = 10) -> None:
        super().__init__()
        b = base
        self.features = nn.Sequential(
            nn.Conv2d(3, 4 * b, kernel_size=3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            Fire(4 * b, b, 4 * b, 4 * b),
            Fire(8 * b, b, 4 * b, 4 * b),
            nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True),
            Fire(8 * b, 2 * b, 8 * b, 8 * b),
            Fire(16 * b, 2 * b, 8 * b, 8 * b),
            nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True),
            Fire(16 * b, 3 * b, 12 * b, 12 * b),
            Fire(24 * b, 4 * b, 16 * b, 16 * b),
        )
        final = nn.Conv2d(32 * b, num_classes, kernel_size=1)
        nn.init.normal_(final.weight, std=0.1)
        self.classifier = nn.Sequential(nn.Dropout(0.5), final, nn.AdaptiveAvgPool2d((1, 1)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.classifier(self.features(x))
        return torch.flatten(x, 1)


def squeezenet(width: float = 1.0) -> SqueezeNet:
    return SqueezeNet(base=int(8 * width))
