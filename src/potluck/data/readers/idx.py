"""The idx format of MNIST and its kin: two zero bytes, a type, the number of dimensions, the sizes, the values."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import torch
from torch import Tensor

from potluck.core.errors import DataError
from potluck.data.readers.files import blocks, packed_or_not
from potluck.data.readers.labels import require_labels

UNSIGNED_BYTE = 8


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The array of bytes in an idx file, packed with gzip or not."""
    coming = blocks(path)
    content = bytearray(next(coming, b""))
    shape = shape_in(content, dimensions, path)
    start = 4 + 4 * dimensions
    size = start + math.prod(shape)
    for block in coming:
        content += block
        if len(content) > size:
            break  # what is too long is not read to its end
    if len(content) != size:
        found = f"more than {size}" if len(content) > size else f"{len(content)}"
        raise DataError(f"{path} is truncated or damaged: {found} bytes, but its header {shape} asks for {size}")
    if size == start:
        raise DataError(f"{path} holds no examples")
    return torch.frombuffer(content, dtype=torch.uint8, offset=start).reshape(shape)


def shape_in(content: bytearray, dimensions: int, path: Path) -> tuple[int, ...]:
    """The sizes that the header of an idx file gives."""
    magic = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if content[:4] != magic:
        raise DataError(
            f"{path} starts with bytes {content[:4].hex()}, not with {magic.hex()}: it is no idx file of "
            f"unsigned bytes with {dimensions} dimension(s)"
        )
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DataError(f"{path} is truncated: {len(content)} bytes, but the header alone takes {start}")
    return struct.unpack(f">{dimensions}I", content[4:start])


def read_pair(folder: Path, images: str, labels: str, classes: int) -> tuple[Tensor, Tensor]:
    """Images (N, 1, height, width) as bytes and their labels, checked against each other."""
    image_file, label_file = (packed_or_not(folder / name) for name in (images, labels))
    inputs, targets = read_idx(image_file, 3).unsqueeze(1), read_idx(label_file, 1).long()
    if len(inputs) != len(targets):
        raise DataError(f"{image_file} holds {len(inputs)} images, but {label_file} {len(targets)} labels")
    require_labels(targets, classes, label_file)
    return inputs, targets
