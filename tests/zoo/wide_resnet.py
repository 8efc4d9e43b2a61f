"""A wide residual network: norm first, dropout inside the block, three stages."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class WideBlock(nn.Module):
    """BN-ReLU-conv twice; where the width changes, the shortcut starts after the first ReLU."""

    def __init__(self, in_planes: int, out_planes: int, stride: int, drop_rate: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_planes)
        self.conv1 = nn.Conv2d(in_planes, out_planes, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_planes)
        self.conv2 = nn.Conv2d(out_planes, out_planes, 3, padding=1, bias=False)
        self.drop_rate = drop_rate
        self.equal_in_out = in_planes == out_planes
        self.conv_shortcut = None if self.equal_in_out else nn.Conv2d(in_planes, out_planes, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        act = F.relu(self.bn1(x))
        out = F.relu(self.bn2(self.conv1(act)))
        if self.drop_rate > 0:
            out = F.dropout(out, p=self.drop_rate, training=self.training)
        out = self.conv2(out)
        return out + (x if self.conv_shortcut is None else self.conv_shortcut(act))


class WideResNet(nn.Module):
    """Depth 6n + 4, the first convolution narrow, the stages `widen` times as wide."""

    def __init__(self, depth: int, widen: int, base: int, drop_rate: float = 0.3, num_classes: int = 10) -> None:
        super().__init__()
        assert (depth - 4) % 6 == 0
        n = (depth - 4) // 6
        widths = [base, base * widen, 2 * base * widen, 4 * base * widen]
        self.conv1 = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        blocks = []
        for stage in range(3):
            for i in range(n):
                in_planes = widths[stage] if i == 0 else widths[stage + 1]
                stride = 2 if stage > 0 and i == 0 else 1
                blocks.append(WideBlock(in_planes, widths[stage + 1], stride, drop_rate))
        self.blocks = nn.ModuleList(blocks)
        self.bn = nn.BatchNorm2d(widths[3])
        self.fc = nn.Linear(widths[3], num_classes)
        self.n_channels = widths[3]

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(x)
        for block in self.blocks:
            out = block(out)
        out = F.relu(self.bn(out))
        out = F.avg_pool2d(out, out.shape[-1])
        return self.fc(out.view(-1, self.n_channels))


def wide_resnet16(width: float = 1.0) -> WideResNet:
    return WideResNet(depth=16, widen=4, base=int(8 * width))
