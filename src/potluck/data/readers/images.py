"""Image files, decoded by Pillow, which is only asked for when one is read."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.core.errors import DataError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})


def pillow() -> Any:
    """Pillow's `Image` module."""
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise DataError("reading image files needs Pillow: pip install 'potluck[images]'") from error


def images_in(folder: Path) -> list[Path]:
    """The image files of one folder, by name."""
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)


def decode(path: Path, colour: bool | None = None) -> Tensor:
    """One image as bytes (C, H, W): three channels, or one if it is grey and `colour` does not insist."""
    image_module = pillow()
    try:
        with image_module.open(path) as image:
            grey = image.mode in ("1", "L", "LA", "I;16") if colour is None else not colour
            pixels = np.array(image.convert("L" if grey else "RGB"), dtype=np.uint8)
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{path} is truncated or no image: {error}") from error
    return torch.from_numpy(pixels).unsqueeze(0) if grey else torch.from_numpy(pixels).permute(2, 0, 1)


def stack_files(paths: Sequence[Path], colour: bool | None = None) -> Tensor:
    """Images of one size as one tensor (N, C, H, W); if some have colour, grey ones get three equal channels."""
    stacked: Tensor | None = None
    for number, path in enumerate(paths):
        image = decode(path, colour)
        if stacked is None:
            stacked = torch.empty((len(paths), *image.shape), dtype=torch.uint8)
        if image.shape[1:] != stacked.shape[2:]:
            raise DataError(
                f"{path} is {image.shape[2]}x{image.shape[1]} pixels, but {paths[0]} is "
                f"{stacked.shape[3]}x{stacked.shape[2]}: make all images of one size first"
            )
        if len(image) > stacked.shape[1]:
            stacked = stacked.repeat(1, 3, 1, 1)
        stacked[number] = image
    if stacked is None:
        raise DataError("no images to read")
    return stacked
