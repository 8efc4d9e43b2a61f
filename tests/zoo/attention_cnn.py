"""Convolutional networks with attention: channels and places (CBAM), and neighbouring channels (ECA)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ChannelAttention(nn.Module):
    """One perceptron for the mean and for the maximum over places."""

    def __init__(self, channels: int, reduction: int = 4) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Conv2d(channels, channels // reduction, 1, bias=False),
            nn.ReLU(),
            nn.Conv2d(channels // reduction, channels, 1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        mean = self.mlp(F.adaptive_avg_pool2d(x, 1))
        largest = self.mlp(F.adaptive_max_pool2d(x, 1))
        return torch.sigmoid(mean + largest) * x


class SpatialAttention(nn.Module):
    """A map of places from the mean and the maximum over the channels."""

    def __init__(self, kernel_size: int = 7) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 1, kernel_size, padding=kernel_size // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        mean = torch.mean(x, dim=1, keepdim=True)
        largest, _ = torch.max(x, dim=1, keepdim=True)
        return torch.sigmoid(self.conv(torch.cat([mean, largest], dim=1))) * x


class ECA(nn.Module):
    """A one-dimensional convolution along the channels."""

    def __init__(self, k_size: int = 3) -> None:
        super().__init__()
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.conv = nn.Conv1d(1, 1, kernel_size=k_size, padding=(k_size - 1) // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.avg_pool(x)
        y = self.conv(y.squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1)
        return x * torch.sigmoid(y).expand_as(x)


class AttentionNet(nn.Module):
    """Three stages of two residual blocks, each block ending in the attention given."""

    def __init__(self, widths: list[int], kind: str, num_classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1)
        self.blocks = nn.ModuleList()
        self.shortcuts = nn.ModuleList()
        inp = widths[0]
        for width in widths:
            for stride in (2, 1):
                attention = [ChannelAttention(width), SpatialAttention()] if kind == "cbam" else [ECA()]
                self.blocks.append(
                    nn.Sequential(
                        nn.Conv2d(inp, width, 3, stride, 1, bias=False),
                        nn.BatchNorm2d(width),
                        nn.ReLU(),
                        nn.Conv2d(width, width, 3, 1, 1, bias=False),
                        nn.BatchNorm2d(width),
                        *attention,
                    )
                )
                self.shortcuts.append(nn.Conv2d(inp, width, 1, stride, bias=False))
                inp = width
        self.fc = nn.Linear(inp, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block, shortcut in zip(self.blocks, self.shortcuts, strict=True):
            x = F.relu(block(x) + shortcut(x))
        return self.fc(F.adaptive_avg_pool2d(x, 1).view(x.size(0), -1))


def cbam_net(width: float = 1.0) -> AttentionNet:
    return AttentionNet([int(n * width) for n in (16, 32, 64)], kind="cbam")


def eca_net(width: float = 1.0) -> AttentionNet:
    return AttentionNet([int(n * width) for n in (16, 32, 64)], kind="eca")
