"""MLP-Mixer: one perceptron across the patches, one across the channels."""

from __future__ import annotations

from torch import Tensor, nn


class FeedForward(nn.Module):
    """Two linear layers."""

    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, hidden_dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden_dim, dim), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class MixerBlock(nn.Module):
    """Mixes tokens, then channels."""

    def __init__(self, dim: int, num_patches: int, token_dim: int, channel_dim: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.token_mix = FeedForward(num_patches, token_dim)
        self.norm2 = nn.LayerNorm(dim)
        self.channel_mix = FeedForward(dim, channel_dim, dropout=0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x).transpose(1, 2)
        x = x + self.token_mix(y).transpose(1, 2)
        return x + self.channel_mix(self.norm2(x))


class MLPMixer(nn.Module):
    """Patches by a strided convolution."""

    def __init__(self, image: int, patch: int, dim: int, token_dim: int, channel_dim: int, depth: int) -> None:
        super().__init__()
        self.num_patches = (image // patch) ** 2
        self.to_patches = nn.Conv2d(3, dim, patch, patch)
        self.blocks = nn.ModuleList(
            [MixerBlock(dim, self.num_patches, token_dim, channel_dim) for _ in range(depth)],
        )
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.to_patches(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


def mixer(width: float = 1.0) -> MLPMixer:
    return MLPMixer(32, 8, dim=int(64 * width), token_dim=int(32 * width), channel_dim=int(256 * width), depth=3)
