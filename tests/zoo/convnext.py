"""ConvNeXt: depthwise 7 x 7, layer norm with the channels last, a wide pointwise pair, a learned scale per channel."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LayerNorm2d(nn.Module):
    """Layer norm over the channels of a picture whose channels come first."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        var = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(var + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Block(nn.Module):
    """The residual unit; linear layers serve as 1 x 1 convolutions."""

    def __init__(self, dim: int, layer_scale_init: float = 1e-1) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(layer_scale_init * torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.dwconv(x)
        x = x.permute(0, 2, 3, 1)
        x = self.norm(x)
        x = self.pwconv2(self.act(self.pwconv1(x)))
        x = self.gamma * x
        return shortcut + x.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Patches, then stages with a strided convolution between them."""

    def __init__(self, depths: tuple[int, ...], dims: tuple[int, ...], num_classes: int = 10) -> None:
        super().__init__()
        self.downsample_layers = nn.ModuleList()
        self.stages = nn.ModuleList()
        for i, (depth, dim) in enumerate(zip(depths, dims, strict=True)):
            if i == 0:
                down = nn.Sequential(nn.Conv2d(3, dim, kernel_size=4, stride=4), LayerNorm2d(dim))
            else:
                down = nn.Sequential(LayerNorm2d(dims[i - 1]), nn.Conv2d(dims[i - 1], dim, kernel_size=2, stride=2))
            self.downsample_layers.append(down)
            self.stages.append(nn.Sequential(*[Block(dim) for _ in range(depth)]))
        self.norm = nn.LayerNorm(dims[-1], eps=1e-6)
        self.head = nn.Linear(dims[-1], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        for down, stage in zip(self.downsample_layers, self.stages, strict=True):
            x = stage(down(x))
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.head(self.norm(x))


def convnext(width: float = 1.0) -> ConvNeXt:
    return ConvNeXt((2, 2, 2), tuple(int(n * width) for n in (16, 32, 64)))
