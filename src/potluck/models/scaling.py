"""How a width ratio turns into a whole number of channels."""

from __future__ import annotations

import math
from collections.abc import Iterable

from potluck.core.errors import ModelError


def ceil_widths(width: float, full: Iterable[int]) -> list[int]:
    """⌈width · c⌉ for every full width c, never below 1 (HeteroFL).

    >>> ceil_widths(1 / 16, [64, 100])
    [4, 7]
    """
    # 0.07 * 100 is 7.000000000000001 in floating point: without the inner rounding it would give 8.
    return [max(1, math.ceil(round(check_width(width) * channels, 9))) for channels in full]


def round_widths(width: float, full: Iterable[int]) -> list[int]:
    """round(width · c) for every full width c, halves to even, never below 1 (FedHM, FLANC).

    >>> round_widths(0.35, [64, 128, 256, 512])
    [22, 45, 90, 179]
    """
    return [max(1, round(check_width(width) * channels)) for channels in full]


def check_width(width: float) -> float:
    """Refuse a width ratio that leaves no network."""
    if not (0 < width < math.inf):
        raise ModelError(f"width is {width}, but it must be a number above 0, such as 0.5 for half the channels")
    return width
