"""Super-resolution: residual blocks without norm, then channels turned into pixels."""

from __future__ import annotations

from torch import Tensor, nn


class ResBlock(nn.Module):
    """Two convolutions, scaled before they are added."""

    def __init__(self, n_feats: int, res_scale: float = 0.5) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_feats, n_feats, 3, padding=1), nn.PReLU(), nn.Conv2d(n_feats, n_feats, 3, padding=1)
        )
        self.res_scale = res_scale

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).mul(self.res_scale) + x


class Upsampler(nn.Sequential):
    """Doubles the resolution by rearranging four times the channels."""

    def __init__(self, n_feats: int) -> None:
        super().__init__(
            nn.Conv2d(n_feats, 4 * n_feats, 3, padding=1), nn.PixelShuffle(2), nn.LeakyReLU(0.2, inplace=True)
        )


class SuperResolution(nn.Module):
    """Four times the resolution in two steps; the picture's mean is taken off and put back."""

    def __init__(self, n_feats: int, n_blocks: int = 4) -> None:
        super().__init__()
        self.mean = 0.5
        self.head = nn.Conv2d(3, n_feats, 3, padding=1)
        self.body = nn.Sequential(*[ResBlock(n_feats) for _ in range(n_blocks)])
        self.body_tail = nn.Conv2d(n_feats, n_feats, 3, padding=1)
        self.upsample = nn.Sequential(Upsampler(n_feats), Upsampler(n_feats))
        self.tail = nn.Conv2d(n_feats, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x - self.mean)
        res = self.body_tail(self.body(x))
        res += x
        return self.tail(self.upsample(res)) + self.mean


def super_resolution(width: float = 1.0) -> SuperResolution:
    return SuperResolution(n_feats=int(16 * width))
