"""The idx format of MNIST and its kin: two zero bytes, a type, the number of dimensions, the sizes, the values."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import torch
from torch import Tensor

from potluck.core.errors import DataError
from potluck.data.readers.files import packed_or_not, read_bytes
from potluck.data.readers.labels import require_labels

UNSIGNED_BYTE = 8


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The array of bytes in an idx file, packed with gzip or not."""
    content = read_bytes(path)
    magic = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    if content[:4] != magic:
        raise DataError(
            f"{path} starts with bytes {content[:4].hex()}, not with {magic.hex()}: it is no idx file of "
            f"unsigned bytes with {dimensions} dimension(s)"
        )
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DataError(f"{path} is truncated: {len(content)} bytes, but the header alone takes {start}")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) != start + math.prod(shape):
        raise DataError(
            f"{path} is truncated or damaged: {len(content)} bytes, but its header {shape} asks for "
            f"{start + math.prod(shape)}"
        )
    if not math.prod(shape):
        raise DataError(f"{path} holds no examples")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=start).reshape(shape)


def read_pair(folder: Path, images: str, labels: str, classes: int) -> tuple[Tensor, Tensor]:
    """Images (N, 1, height, width) as bytes and their labels, checked against each other."""
    image_file, label_file = (packed_or_not(folder / name) for name in (images, labels))
    inputs, targets = read_idx(image_file, 3).unsqueeze(1), read_idx(label_file, 1).long()
    if len(inputs) != len(targets):
        raise DataError(f"{image_file} holds {len(inputs)} images, but {label_file} {len(targets)} labels")
    require_labels(targets, classes, label_file)
    return inputs, targets
