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
from potluck.data.readers.files import open_file

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "PPM", "TIFF")  # Pillow knows more, and runs programs for some
GREY = ("1", "L", "LA", "I;16")  # modes without colour
MOST_PIXELS = 1 << 24  # 4096 x 4096

Like = tuple[Path, tuple[int, int]]
"""An image whose width and height others must have."""


def pillow() -> Any:
    """Pillow's `Image` module."""
    try:
        return import_module("PIL.Image")
    except ImportError as error:
        raise DataError("reading image files needs Pillow: pip install 'potluck[images]'") from error


def images_in(folder: Path) -> list[Path]:
    """The image files of one folder, by name."""
    try:
        return sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)
    except OSError as error:
        raise DataError(f"cannot read {folder}: {error.strerror or error}") from error


def decode(path: Path, colour: bool | None = None, like: Like | None = None) -> Tensor:
    """One image as bytes (C, H, W): three channels, or one if it is grey and `colour` does not insist.

    Its width and height are looked at before anything is decoded; they are to be those of `like`, if that is given.
    """
    image_module = pillow()
    with open_file(path) as file:
        try:
            with image_module.open(file, formats=FORMATS) as image:
                require_size(image.size, like, path)
                grey = image.mode in GREY if colour is None else not colour
                pixels = np.array(image.convert("L" if grey else "RGB"), dtype=np.uint8)
        except DataError:
            raise
        except Exception as error:  # a damaged image can raise anything
            raise DataError(f"{path} is truncated or no image: {str(error).partition(' <')[0]}") from error
    return torch.from_numpy(pixels).unsqueeze(0) if grey else torch.from_numpy(pixels).permute(2, 0, 1)


def look(path: Path, like: Like | None = None) -> tuple[tuple[int, int], bool]:
    """Width and height of an image, and whether it has colour; nothing is decoded."""
    image_module = pillow()
    with open_file(path) as file:
        try:
            with image_module.open(file, formats=FORMATS) as image:
                require_size(image.size, like, path)
                return image.size, image.mode not in GREY
        except DataError:
            raise
        except Exception as error:  # a damaged image can raise anything
            raise DataError(f"{path} is truncated or no image: {str(error).partition(' <')[0]}") from error


def require_size(found: tuple[int, int], like: Like | None, path: Path) -> None:
    """Refuse an image of another size than the first, or one that would fill the memory."""
    width, height = found
    if like is not None and found != like[1]:
        raise DataError(
            f"{path} is {width}x{height} pixels, but {like[0]} is {like[1][0]}x{like[1][1]}: "
            "make all images of one size first"
        )
    if width * height > MOST_PIXELS:
        raise DataError(f"{path} is {width}x{height} pixels, but {MOST_PIXELS:,} are the most that are read")


def stack_files(paths: Sequence[Path], colour: bool | None = None) -> Tensor:
    """Images of one size as one tensor (N, C, H, W); if some have colour, grey ones get three equal channels."""
    if not paths:
        raise DataError("no images to read")
    first = decode(paths[0], colour)
    stacked = empty_stack(len(paths), first)
    stacked[0] = first
    for number, path in enumerate(paths[1:], 1):
        image = decode(path, colour, (paths[0], (stacked.shape[3], stacked.shape[2])))
        if len(image) > stacked.shape[1]:
            stacked = stacked.repeat(1, 3, 1, 1)
        stacked[number] = image
    return stacked


def empty_stack(count: int, image: Tensor) -> Tensor:
    """Room for so many images like this one."""
    try:
        return torch.empty((count, *image.shape), dtype=torch.uint8)
    except RuntimeError as error:
        size = f"{image.shape[2]}x{image.shape[1]}"
        raise DataError(f"{count:,} images of {size} pixels do not fit in memory; make them smaller first") from error
