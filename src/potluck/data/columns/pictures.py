"""Image files that are decoded when a batch asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from potluck.data.readers.images import decode


@dataclass(frozen=True)
class Pictures:
    """Files of images, all of one size, as bytes (examples, channels, height, width)."""

    paths: tuple[Path, ...]
    size: tuple[int, int]  # width and height, those of the first
    colour: bool

    even: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, index: Tensor) -> Tensor:
        found = self.example().new_empty(len(index), *self.shape)
        for place, number in enumerate(index.tolist()):
            found[place] = decode(self.paths[number], self.colour, (self.paths[0], self.size))
        return found

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image."""
        width, height = self.size
        return 3 if self.colour else 1, height, width

    def example(self) -> Tensor:
        return torch.zeros(1, *self.shape, dtype=torch.uint8)
