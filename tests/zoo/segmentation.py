"""Segmentation by an encoder and a decoder: bilinear upsampling, a skip, an atrous pyramid."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def conv_block(inp: int, oup: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inp, oup, 3, stride, padding=dilation, dilation=dilation, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(oup), nn.ReLU())


class AtrousPyramid(nn.Module):
    """Several dilations and the picture's mean, spread back over it, concatenated."""

    def __init__(self, channels: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.branches = nn.ModuleList([conv_block(channels, channels, dilation=rate) for rate in rates])
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels, 1), nn.ReLU())
        self.project = nn.Sequential(nn.Conv2d((len(rates) + 1) * channels, channels, 1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        results = [branch(x) for branch in self.branches]
        mean = F.interpolate(self.pooled(x), size=x.shape[-2:], mode="bilinear", align_corners=False)
        return self.project(torch.cat([*results, mean], dim=1))


class SegmentationNet(nn.Module):
    """Low-level features join the upsampled high-level ones."""

    def __init__(self, base: int, n_classes: int = 5) -> None:
        super().__init__()
        self.enc1 = nn.Sequential(conv_block(3, base), conv_block(base, base))
        self.enc2 = nn.Sequential(conv_block(base, 2 * base, stride=2), conv_block(2 * base, 2 * base))
        self.enc3 = nn.Sequential(conv_block(2 * base, 4 * base, stride=2), conv_block(4 * base, 4 * base))
        self.aspp = AtrousPyramid(4 * base, (1, 2, 3))
        self.up = nn.Upsample(scale_factor=4, mode="bilinear", align_corners=True)
        self.low = nn.Conv2d(base, base // 2, 1)
        self.dec = nn.Sequential(conv_block(4 * base + base // 2, 2 * base), conv_block(2 * base, 2 * base))
        self.classifier = nn.Conv2d(2 * base, n_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        low = self.enc1(x)
        high = self.aspp(self.enc3(self.enc2(low)))
        joined = torch.cat((self.up(high), F.relu(self.low(low))), dim=1)
        return self.classifier(self.dec(joined))


def segmentation(width: float = 1.0) -> SegmentationNet:
    return SegmentationNet(base=int(16 * width))
