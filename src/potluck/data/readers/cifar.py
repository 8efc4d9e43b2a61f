"""The two formats of the CIFAR sets: fixed records (labels, then planes R, G, B) and pickled batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from potluck.core.errors import DataError
from potluck.data.readers.labels import require_labels
from potluck.data.readers.pickles import Bytes, read_pickle

PIXELS = 3 * 32 * 32


def read_records(content: bytes | bytearray, path: Path, label_bytes: int, classes: int) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) and labels of a binary batch; the last label byte before the pixels counts."""
    record = label_bytes + PIXELS
    if not content or len(content) % record:
        raise DataError(f"{path} is truncated or damaged: {len(content)} bytes are not whole records of {record}")
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    return checked(records[:, label_bytes:], records[:, label_bytes - 1], path, classes)


def read_batch(content: bytes | bytearray, path: Path, key: str, classes: int) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) and labels of a pickled batch, whose labels are under `key`."""
    batch = read_pickle(content, path)
    pixels, labels = batch.get("data"), batch.get(key)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise DataError(f"{path} has no array 'data' of rows of {PIXELS} bytes")
    if not isinstance(labels, list) or not all(type(label) is int and abs(label) < 1 << 31 for label in labels):
        raise DataError(f"{path} has no list of whole numbers '{key}'")
    if len(labels) != len(pixels):
        raise DataError(f"{path} holds {len(pixels)} images but {len(labels)} labels")
    return checked(pixels, np.array(labels, np.int64), path, classes)


def checked(
    pixels: Bytes, labels: Bytes | np.ndarray[tuple[int], np.dtype[np.int64]], path: Path, classes: int
) -> tuple[Tensor, Tensor]:
    """Both as tensors of their own, after a look at the labels."""
    targets = torch.from_numpy(labels.astype(np.int64))
    require_labels(targets, classes, path)
    return torch.from_numpy(pixels.reshape(-1, 3, 32, 32).copy()), targets
