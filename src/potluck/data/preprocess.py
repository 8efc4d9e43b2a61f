"""What batches of images go through, on tensors: normalisation always, augmentation in training.

A recipe is what one paper does to one data set; sources list theirs by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from potluck.core.data import Augment, Prepare
from potluck.core.inputs import mapped


@dataclass(frozen=True)
class Normalise:
    """(x / scale - mean) / std per channel: bytes (N, C, H, W) to floats."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 255.0

    def __call__(self, images: Tensor) -> Tensor:
        mean = torch.tensor(self.mean, device=images.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=images.device).view(-1, 1, 1)
        return images.float().div_(self.scale).sub_(mean).div_(std)


@dataclass(frozen=True)
class Scale:
    """x / scale: bytes of any shape to floats between 0 and 1."""

    scale: float = 255.0

    def __call__(self, inputs: Tensor) -> Tensor:
        return inputs.float().div_(self.scale)


@dataclass(frozen=True)
class ScaleBytes:
    """Those of several inputs that are bytes become floats between 0 and 1; the others stay as they are."""

    def __call__(self, inputs: Any) -> Any:
        return scaled_bytes(inputs)


def scaled_bytes(inputs: Any) -> Any:
    """Inputs of which bytes are floats between 0 and 1."""
    scale = Scale()
    return mapped(lambda tensor: scale(tensor) if tensor.dtype is torch.uint8 else tensor, inputs)


@dataclass(frozen=True)
class Flip:
    """Every image is mirrored left to right, or not, with equal chance."""

    def __call__(self, images: Tensor, rng: torch.Generator) -> Tensor:
        height, width = images.shape[-2:]
        return pick(images, torch.arange(height).expand(len(images), -1), perhaps_mirrored(len(images), width, rng))


@dataclass(frozen=True)
class CropFlip:
    """Every image is moved by up to `pad` pixels each way over a black border, then perhaps mirrored."""

    pad: int = 4

    def __call__(self, images: Tensor, rng: torch.Generator) -> Tensor:
        height, width = images.shape[-2:]
        top, left = torch.randint(2 * self.pad + 1, (2, len(images), 1), generator=rng)
        columns = perhaps_mirrored(len(images), width, rng)
        return pick(F.pad(images, (self.pad,) * 4), top + torch.arange(height), left + columns)


def perhaps_mirrored(count: int, width: int, rng: torch.Generator) -> Tensor:
    """For every image the order of its columns (count, width): as it is or reversed."""
    order = torch.arange(width)
    return torch.where(torch.rand(count, 1, generator=rng) < 0.5, order.flip(0), order)


def pick(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """From image n the pixels at rows[n] x columns[n], in every channel, in one gather."""
    count, channels, _, width = images.shape
    positions = (rows.unsqueeze(2) * width + columns.unsqueeze(1)).flatten(1).to(images.device)
    picked = images.flatten(2).gather(2, positions.unsqueeze(1).expand(-1, channels, -1))
    return picked.view(count, channels, rows.shape[1], columns.shape[1])


@dataclass(frozen=True)
class Recipe:
    """How one paper prepares and augments a data set's images."""

    prepare: Prepare
    augment: Augment | None = None
