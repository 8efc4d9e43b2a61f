"""ShuffleNet V2: half of the channels go through a branch, then both halves are interleaved."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Deal the channels out so that every later half has some of both."""
    batch, channels, height, width = x.shape
    x = x.view(batch, groups, channels // groups, height, width)
    x = torch.transpose(x, 1, 2).contiguous()
    return x.view(batch, channels, height, width)


class ShuffleUnit(nn.Module):
    """With stride 1 one half passes through untouched; with stride 2 both halves are branches."""

    def __init__(self, inp: int, oup: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        branch = oup // 2
        self.branch1 = nn.Sequential()
        if stride == 2:
            self.branch1 = nn.Sequential(
                nn.Conv2d(inp, inp, 3, stride, 1, groups=inp, bias=False),
                nn.BatchNorm2d(inp),
                nn.Conv2d(inp, branch, 1, bias=False),
                nn.BatchNorm2d(branch),
                nn.ReLU(inplace=True),
            )
        self.branch2 = nn.Sequential(
            nn.Conv2d(inp if stride == 2 else branch, branch, 1, bias=False),
            nn.BatchNorm2d(branch),
            nn.ReLU(inplace=True),
            nn.Conv2d(branch, branch, 3, stride, 1, groups=branch, bias=False),
            nn.BatchNorm2d(branch),
            nn.Conv2d(branch, branch, 1, bias=False),
            nn.BatchNorm2d(branch),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 1:
            x1, x2 = x.chunk(2, dim=1)
            out = torch.cat((x1, self.branch2(x2)), dim=1)
        else:
            out = torch.cat((self.branch1(x), self.branch2(x)), dim=1)
        return channel_shuffle(out, 2)


class ShuffleNetV2(nn.Module):
    """A stem and two stages."""

    def __init__(self, stages: list[tuple[int, int]], stem: int, last: int, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(3, stem, 3, 2, 1, bias=False), nn.BatchNorm2d(stem), nn.ReLU(inplace=True))
        units: list[nn.Module] = []
        inp = stem
        for oup, repeats in stages:
            units.append(ShuffleUnit(inp, oup, 2))
            units += [ShuffleUnit(oup, oup, 1) for _ in range(repeats - 1)]
            inp = oup
        self.stages = nn.Sequential(*units)
        self.conv5 = nn.Sequential(nn.Conv2d(inp, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU(inplace=True))
        self.fc = nn.Linear(last, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv5(self.stages(self.conv1(x)))
        return self.fc(x.mean([2, 3]))


def shufflenet_v2(width: float = 1.0) -> ShuffleNetV2:
    scale = [(int(n * width), repeats) for n, repeats in ((64, 3), (128, 3))]
    return ShuffleNetV2(scale, stem=int(16 * width), last=int(256 * width))
