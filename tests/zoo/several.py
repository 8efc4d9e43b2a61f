"""Networks with several inputs or outputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ImageAndTable(nn.Module):
    """A picture and a row of numbers, each through its own layers, then joined; the row also scales the features."""

    def __init__(self, n_metadata: int, channels: int, hidden: int, num_classes: int = 4) -> None:
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(3, channels, 3, 2, 1),
            nn.GroupNorm(4, channels),
            nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, 2, 1),
            nn.GroupNorm(4, 2 * channels),
            nn.ReLU(),
        )
        self.table = nn.Sequential(nn.Linear(n_metadata, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.film = nn.Linear(hidden, 4 * channels)
        self.head = nn.Sequential(nn.Linear(2 * channels + hidden, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))

    def forward(self, image: Tensor, metadata: Tensor) -> Tensor:
        features = self.cnn(image)
        row = self.table(metadata)
        gamma, beta = self.film(row).chunk(2, dim=1)
        features = (1 + gamma[:, :, None, None]) * features + beta[:, :, None, None]
        pooled = F.adaptive_avg_pool2d(features, 1).squeeze(-1).squeeze(-1)
        return self.head(torch.cat([pooled, row], dim=1))


class Detector(nn.Module):
    """A pyramid of two scales with shared heads: class scores and boxes of every place, as a tuple."""

    def __init__(self, base: int, n_classes: int = 4, n_anchors: int = 3) -> None:
        super().__init__()
        self.n_classes, self.n_anchors = n_classes, n_anchors
        self.c1 = self._stage(3, base)
        self.c2 = self._stage(base, 2 * base)
        self.c3 = self._stage(2 * base, 4 * base)
        self.lateral2 = nn.Conv2d(2 * base, 2 * base, 1)
        self.lateral3 = nn.Conv2d(4 * base, 2 * base, 1)
        self.tower = nn.Sequential(nn.Conv2d(2 * base, 2 * base, 3, padding=1), nn.ReLU())
        self.score = nn.Conv2d(2 * base, n_anchors * n_classes, 3, padding=1)
        self.box = nn.Conv2d(2 * base, n_anchors * 4, 3, padding=1)

    def _stage(self, inp: int, oup: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(inp, oup, 3, 2, 1, bias=False), nn.BatchNorm2d(oup), nn.ReLU())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        c2 = self.c2(self.c1(x))
        c3 = self.c3(c2)
        p3 = self.lateral3(c3)
        p2 = self.lateral2(c2) + F.interpolate(p3, scale_factor=2.0, mode="nearest")
        scores, boxes = [], []
        for level in (p2, p3):
            seen = self.tower(level)
            scores.append(self.score(seen).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.n_classes))
            boxes.append(self.box(seen).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4))
        return torch.cat(scores, 1), torch.cat(boxes, 1)


class VAE(nn.Module):
    """Returns a dictionary: the picture again, and the code's mean and log-variance."""

    def __init__(self, base: int, latent: int) -> None:
        super().__init__()
        self.base = base
        self.encoder = nn.Sequential(
            nn.Conv2d(1, base, 4, 2, 1), nn.ReLU(), nn.Conv2d(base, 2 * base, 4, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.stats = nn.Linear(2 * base * 7 * 7, 2 * latent)
        self.expand = nn.Linear(latent, 2 * base * 7 * 7)
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (2 * base, 7, 7)),
            nn.ConvTranspose2d(2 * base, base, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(base, 1, 4, 2, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        mean, log_var = self.stats(self.encoder(x)).chunk(2, dim=-1)
        code = mean
        if self.training:
            code = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
        return {"picture": self.decoder(torch.relu(self.expand(code))), "mean": mean, "log_var": log_var}


def image_and_table(width: float = 1.0) -> ImageAndTable:
    return ImageAndTable(6, int(32 * width), int(32 * width))


def detector(width: float = 1.0) -> Detector:
    return Detector(int(16 * width))


def vae(width: float = 1.0) -> VAE:
    """The code is an output, so its length stays."""
    return VAE(int(16 * width), latent=8)
