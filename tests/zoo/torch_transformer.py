"""Transformers made of PyTorch's own layers: nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.Transformer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class AttentionBlock(nn.Module):
    """nn.MultiheadAttention inside a block of one's own."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(embed_dim)
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, dropout=0.1, batch_first=True)
        self.ln_2 = nn.LayerNorm(embed_dim)
        self.mlp = nn.Sequential(nn.Linear(embed_dim, 2 * embed_dim), nn.GELU(), nn.Linear(2 * embed_dim, embed_dim))

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        y, _ = self.attn(y, y, y, need_weights=False)
        x = x + y
        return x + self.mlp(self.ln_2(x))


class AttentionViT(nn.Module):
    """Patches cut by unfolding and a linear layer; the mean of the tokens is classified."""

    def __init__(self, patch: int, embed_dim: int, num_heads: int, depth: int, n_patches: int) -> None:
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch * patch, embed_dim)
        self.positions = nn.Embedding(n_patches, embed_dim)
        self.blocks = nn.ModuleList([AttentionBlock(embed_dim, num_heads) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(embed_dim), nn.Linear(embed_dim, 10))

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        p = self.patch
        x = x.view(b, c, h // p, p, w // p, p).permute(0, 2, 4, 1, 3, 5).reshape(b, -1, c * p * p)
        x = self.embed(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class EncoderViT(nn.Module):
    """A stack of nn.TransformerEncoderLayer with a class token."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int, num_layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, d_model, 8, 8)
        self.class_token = nn.Parameter(torch.zeros(1, 1, d_model))
        self.positions = nn.Parameter(torch.randn(1, 17, d_model) * 0.02)
        layer = nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.head = nn.Linear(d_model, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).permute(0, 2, 1)
        x = torch.cat([self.class_token.repeat(x.size(0), 1, 1), x], dim=1) + self.positions
        return self.head(self.encoder(x)[:, 0])


class Translator(nn.Module):
    """nn.Transformer from tokens to tokens, sequence first, sinusoidal positions in a buffer."""

    def __init__(self, n_tokens: int, d_model: int, nhead: int, layers: int, dim_feedforward: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.embed = nn.Embedding(n_tokens, d_model)
        position = torch.arange(64).unsqueeze(1)
        step = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(64, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * step)
        pe[:, 0, 1::2] = torch.cos(position * step)
        self.register_buffer("pe", pe)
        self.transformer = nn.Transformer(d_model, nhead, layers, layers, dim_feedforward)
        self.out = nn.Linear(d_model, n_tokens)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        src, tgt = src.transpose(0, 1), tgt.transpose(0, 1)
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(0))
        source = self.embed(src) * math.sqrt(self.d_model) + self.pe[: src.size(0)]
        target = self.embed(tgt) * math.sqrt(self.d_model) + self.pe[: tgt.size(0)]
        return self.out(self.transformer(source, target, tgt_mask=mask)).transpose(0, 1)


def attention_vit(width: float = 1.0) -> AttentionViT:
    return AttentionViT(8, embed_dim=int(64 * width), num_heads=4, depth=2, n_patches=16)


def encoder_vit(width: float = 1.0) -> EncoderViT:
    return EncoderViT(int(64 * width), nhead=4, dim_feedforward=int(128 * width), num_layers=2)


def translator(width: float = 1.0) -> Translator:
    return Translator(60, int(64 * width), nhead=4, layers=2, dim_feedforward=int(128 * width))
