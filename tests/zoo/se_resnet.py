"""A residual network whose blocks weigh their channels (squeeze and excitation)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class SELayer(nn.Module):
    """One weight per channel from the mean over positions, through a narrow linear pair."""

    def __init__(self, channel: int, reduction: int = 4) -> None:
        super().__init__()
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(
            nn.Linear(channel, channel // reduction, bias=False),
            nn.ReLU(inplace=True),
            nn.Linear(channel // reduction, channel, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        b, c, _, _ = x.size()
        y = self.avg_pool(x).view(b, c)
        y = self.fc(y).view(b, c, 1, 1)
        return x * y.expand_as(x)


class SEBlock(nn.Module):
    """A basic block with a channel weighting before the sum."""

    def __init__(self, in_planes: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.se = SELayer(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(nn.Conv2d(in_planes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.se(self.bn2(self.conv2(out)))
        return F.relu(out + self.shortcut(x))


class SEResNet(nn.Module):
    """Three stages of two blocks."""

    def __init__(self, widths: tuple[int, int, int], num_classes: int = 10) -> None:
        super().__init__()
        a, b, c = widths
        self.stem = nn.Sequential(nn.Conv2d(3, a, 3, 1, 1, bias=False), nn.BatchNorm2d(a), nn.ReLU(inplace=True))
        self.stages = nn.Sequential(
            SEBlock(a, a, 1), SEBlock(a, a, 1), SEBlock(a, b, 2), SEBlock(b, b, 1), SEBlock(b, c, 2), SEBlock(c, c, 1)
        )
        self.fc = nn.Linear(c, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        return self.fc(x.mean(dim=(2, 3)))


def se_resnet(width: float = 1.0) -> SEResNet:
    a, b, c = (int(n * width) for n in (16, 32, 64))
    return SEResNet((a, b, c))
