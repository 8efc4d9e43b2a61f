"""A residual network with norm and ReLU before every convolution."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class PreActBlock(nn.Module):
    """BN-ReLU-conv twice on the residual branch, nothing on the identity."""

    def __init__(self, in_planes: int, planes: int, stride: int = 1) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_planes)
        self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, padding=1, bias=False)
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(nn.Conv2d(in_planes, planes, kernel_size=1, stride=stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(x))
        shortcut = self.shortcut(out) if hasattr(self, "shortcut") else x
        out = self.conv1(out)
        out = self.conv2(F.relu(self.bn2(out)))
        out += shortcut
        return out


class PreActResNet(nn.Module):
    """Four stages of pre-activation blocks; no norm after the stem."""

    def __init__(self, num_blocks: list[int], widths: list[int], num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], kernel_size=3, padding=1, bias=False)
        stages = []
        in_planes = widths[0]
        for i, (count, planes) in enumerate(zip(num_blocks, widths, strict=True)):
            for j in range(count):
                stages.append(PreActBlock(in_planes, planes, stride=2 if i > 0 and j == 0 else 1))
                in_planes = planes
        self.layers = nn.Sequential(*stages)
        self.bn = nn.BatchNorm2d(in_planes)
        self.linear = nn.Linear(in_planes, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layers(self.conv1(x))
        out = F.relu(self.bn(out))
        out = F.adaptive_avg_pool2d(out, 1)
        return self.linear(out.view(out.size(0), -1))


def preact_resnet18(width: float = 1.0) -> PreActResNet:
    return PreActResNet([2, 2, 2, 2], [int(n * width) for n in (16, 32, 64, 128)])
