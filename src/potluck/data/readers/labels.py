"""The check that every source of labels goes through."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from potluck.core.errors import DataError


def require_labels(targets: Tensor, classes: int, path: Path) -> None:
    """Refuse a file with no examples, or with a label outside 0 .. classes - 1."""
    if not len(targets):
        raise DataError(f"{path} holds no examples")
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= classes:
        raise DataError(f"{path} has label {low if low < 0 else high}, outside 0 to {classes - 1}")
