"""ViT-Small, the network FedLoRA fine-tunes."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from potluck.core.errors import ModelError
from potluck.models.attention import attend
from potluck.models.scaling import Depth, Rounding, Size, widths
from potluck.models.shapes import image_shape

HEADS = 6
HEAD_WIDTH = 64
EPS = 1e-6  # the vision transformer's own, not PyTorch's default: published weights were trained with it


class FusedAttention(nn.Module):
    """Every token looks at every token; queries, keys and values come from one projection."""

    channel_blocks: ClassVar[dict[str, tuple[int, ...]]] = {
        "qkv.weight": (3 * HEADS, 1),
        "qkv.bias": (3 * HEADS,),
        "proj.weight": (1, HEADS),
    }

    def __init__(self, features: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(features, 3 * features)
        self.proj = nn.Linear(features, features)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        out: Tensor = self.proj(attend(query, key, value, HEADS))
        return out


class EncoderBlock(nn.Module):
    """x = x + attention(norm(x)), then x = x + feed_forward(norm(x))."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(features, eps=EPS)
        self.attention = FusedAttention(features)
        self.norm2 = nn.LayerNorm(features, eps=EPS)
        self.mlp = nn.Sequential(nn.Linear(features, 4 * features), nn.GELU(), nn.Linear(4 * features, features))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + cast(Tensor, self.mlp(self.norm2(x)))


class VisionTransformer(nn.Module):
    """Patches as tokens, with a class token in front from which the logits are read."""

    def __init__(self, channels: int, patches: int, patch: int, features: int, depth: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, features, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, features))
        self.positions = nn.Parameter(torch.zeros(1, 1 + patches, features))
        self.blocks = nn.Sequential(*(EncoderBlock(features) for _ in range(depth)))
        self.norm = nn.LayerNorm(features, eps=EPS)
        self.head = nn.Linear(features, classes)
        nn.init.trunc_normal_(self.positions, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.positions
        logits: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return logits


def vit_small(
    width: float = 1.0,
    *,
    shape: tuple[Size, ...] = (3, 224, 224),
    classes: Size = 10,
    patch: Size = 16,
    depth: Depth = 12,
    rounding: Rounding = "ceil",
) -> nn.Module:
    """ViT-Small/16: 12 blocks of 6 heads of ⌈64 · width⌉ features, so that all heads survive narrowing.

    >>> sum(p.numel() for p in vit_small().parameters())
    21669514
    """
    channels, rows, columns = image_shape("vit-small", shape, smallest=patch)
    if rows % patch or columns % patch:
        raise ModelError(f"shape is {tuple(shape)}, but vit-small cuts images into whole patches of {patch}x{patch}")
    (head,) = widths(width, (HEAD_WIDTH,), rounding)
    patches = (rows // patch) * (columns // patch)
    return VisionTransformer(channels, patches, patch, HEADS * head, depth, classes)
