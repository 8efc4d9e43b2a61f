"""EfficientNet: inverted residuals with SiLU, channel weights, and whole branches dropped at random."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def drop_path(x: Tensor, drop_prob: float, training: bool) -> Tensor:
    """Leave out the branch for some of the examples, scale it up for the others."""
    if not training or drop_prob == 0.0:
        return x
    keep_prob = 1 - drop_prob
    mask = torch.rand((x.shape[0], 1, 1, 1), dtype=x.dtype, device=x.device)
    return x / keep_prob * (mask + keep_prob).floor()


class SqueezeExcitation(nn.Module):
    """Channel weights; the squeeze is measured against the block's input, not its hidden width."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.se = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.SiLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.se(x)


class MBConv(nn.Module):
    """Expand, depthwise, weigh the channels, project, maybe drop."""

    def __init__(self, inp: int, oup: int, expand: int, kernel: int, stride: int, drop_prob: float) -> None:
        super().__init__()
        hidden = inp * expand
        self.drop_prob = drop_prob
        self.residual = stride == 1 and inp == oup
        self.expand = nn.Identity()
        if expand != 1:
            self.expand = nn.Sequential(nn.Conv2d(inp, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.SiLU())
        self.depthwise = nn.Sequential(
            nn.Conv2d(hidden, hidden, kernel, stride, kernel // 2, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.SiLU(),
        )
        self.se = SqueezeExcitation(hidden, max(1, inp // 4))
        self.project = nn.Sequential(nn.Conv2d(hidden, oup, 1, bias=False), nn.BatchNorm2d(oup))

    def forward(self, x: Tensor) -> Tensor:
        out = self.project(self.se(self.depthwise(self.expand(x))))
        if self.residual:
            out = drop_path(out, self.drop_prob, self.training) + x
        return out


class EfficientNet(nn.Module):
    """Stages given as (expansion, channels, blocks, stride, kernel); deeper blocks are dropped more often."""

    def __init__(self, stages: list[tuple[int, int, int, int, int]], stem: int, head: int, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, 2, 1, bias=False), nn.BatchNorm2d(stem), nn.SiLU())
        blocks: list[nn.Module] = []
        total = sum(count for _, _, count, _, _ in stages)
        inp = stem
        for expand, oup, count, stride, kernel in stages:
            for i in range(count):
                drop = 0.2 * len(blocks) / total
                blocks.append(MBConv(inp, oup, expand, kernel, stride if i == 0 else 1, drop))
                inp = oup
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Sequential(nn.Conv2d(inp, head, 1, bias=False), nn.BatchNorm2d(head), nn.SiLU())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(head, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.classifier(torch.flatten(self.pool(self.head(x)), start_dim=1))


def efficientnet(width: float = 1.0) -> EfficientNet:
    stages = [(1, 16, 1, 1, 3), (4, 16, 2, 2, 3), (4, 32, 2, 2, 5), (4, 48, 2, 1, 3)]
    scaled = [(e, int(c * width), n, s, k) for e, c, n, s, k in stages]
    return EfficientNet(scaled, stem=int(16 * width), head=int(128 * width))
