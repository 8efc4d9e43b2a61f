"""Swin: attention inside windows that shift, a learned bias per relative position, patches merged between stages."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def window_partition(x: Tensor, size: int) -> Tensor:
    """(B, H, W, C) to (windows, size * size, C)."""
    b, h, w, c = x.shape
    x = x.view(b, h // size, size, w // size, size, c)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size * size, c)


def window_reverse(windows: Tensor, size: int, h: int, w: int) -> Tensor:
    """Back to (B, H, W, C)."""
    b = windows.shape[0] // (h * w // size // size)
    x = windows.view(b, h // size, w // size, size, size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, -1)


class WindowAttention(nn.Module):
    """The bias table has one row per offset, one column per head; a buffer says which pair has which offset."""

    def __init__(self, dim: int, window: int, num_heads: int) -> None:
        super().__init__()
        self.dim, self.window, self.num_heads = dim, window, num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.relative_position_bias_table = nn.Parameter(torch.randn((2 * window - 1) ** 2, num_heads) * 0.02)
        coords = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("relative_position_index", relative[..., 0] * (2 * window - 1) + relative[..., 1])
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, c // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)]
        attn = attn + bias.view(n, n, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        if mask is not None:
            windows = mask.shape[0]
            attn = attn.view(b // windows, windows, self.num_heads, n, n) + mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, self.num_heads, n, n)
        x = (attn.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, n, c)
        return self.proj(x)


class SwinBlock(nn.Module):
    """Every other block shifts its windows and masks what the shift brought together."""

    def __init__(self, dim: int, resolution: int, num_heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.resolution, self.window, self.shift = resolution, window, shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, window, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        mask = None
        if shift > 0:
            regions = torch.zeros(1, resolution, resolution, 1)
            cuts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
            for i, rows in enumerate(cuts):
                for j, columns in enumerate(cuts):
                    regions[:, rows, columns, :] = 3 * i + j
            flat = window_partition(regions, window).squeeze(-1)
            mask = (flat.unsqueeze(1) != flat.unsqueeze(2)).float() * -100.0
        self.register_buffer("attn_mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        b, length, c = x.shape
        h = w = self.resolution
        y = self.norm1(x).view(b, h, w, c)
        if self.shift > 0:
            y = torch.roll(y, shifts=(-self.shift, -self.shift), dims=(1, 2))
        y = self.attn(window_partition(y, self.window), self.attn_mask)
        y = window_reverse(y, self.window, h, w)
        if self.shift > 0:
            y = torch.roll(y, shifts=(self.shift, self.shift), dims=(1, 2))
        x = x + y.view(b, length, c)
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    """Four neighbours side by side, normed, then half as many channels."""

    def __init__(self, dim: int, resolution: int) -> None:
        super().__init__()
        self.dim, self.resolution = dim, resolution
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, self.resolution, self.resolution, self.dim)
        x = torch.cat([x[:, i::2, j::2, :] for j in (0, 1) for i in (0, 1)], dim=-1)
        x = x.view(x.shape[0], -1, 4 * self.dim)
        return self.reduction(self.norm(x))


class Swin(nn.Module):
    """Two stages of two blocks."""

    def __init__(self, dim: int, heads: tuple[int, int], resolution: int = 8, window: int = 4) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, 4, 4)
        self.patch_norm = nn.LayerNorm(dim)
        layers: list[nn.Module] = [SwinBlock(dim, resolution, heads[0], window, s) for s in (0, window // 2)]
        layers.append(PatchMerging(dim, resolution))
        layers += [SwinBlock(2 * dim, resolution // 2, heads[1], 2, shift) for shift in (0, 1)]
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(2 * dim)
        self.avgpool = nn.AdaptiveAvgPool1d(1)
        self.head = nn.Linear(2 * dim, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_norm(self.patch_embed(x).flatten(2).transpose(1, 2))
        for layer in self.layers:
            x = layer(x)
        x = self.avgpool(self.norm(x).transpose(1, 2))
        return self.head(torch.flatten(x, 1))


def swin(width: float = 1.0) -> Swin:
    return Swin(int(32 * width), heads=(2, 4))
