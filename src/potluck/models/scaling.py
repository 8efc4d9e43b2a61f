"""How a width ratio turns into a whole number of channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Annotated, Literal

from annotated_types import Interval

from potluck.core.errors import ModelError

Rounding = Literal["ceil", "round"]
Size = Annotated[int, Interval(ge=1, le=10**6)]
"""Channels, features, classes, pixels: how large one dimension may be."""
Depth = Annotated[int, Interval(ge=1, le=1000)]
"""How many layers or blocks follow each other."""


def widths(width: float, full: Iterable[int], rounding: Rounding) -> list[int]:
    """width · c for every full width c, never below 1: rounded up (HeteroFL) or to the nearest (FedHM, FLANC).

    >>> widths(0.35, [64, 128, 256, 512], "ceil"), widths(0.35, [64, 128, 256, 512], "round")
    ([23, 45, 90, 180], [22, 45, 90, 179])
    """
    if not (0 < width < math.inf):
        raise ModelError(f"width is {width}, but it must be a number above 0, such as 0.5 for half the channels")
    if rounding not in RULES:
        raise ModelError(f"rounding is '{rounding}', but it should be one of {', '.join(RULES)}")
    return [max(1, RULES[rounding](width * channels)) for channels in full]


def up(exact: float) -> int:
    """⌈x⌉, blind to floating-point noise."""
    # 0.07 * 100 is 7.000000000000001: without the inner rounding it would give 8.
    return math.ceil(round(exact, 9))


RULES: dict[str, Callable[[float], int]] = {"ceil": up, "round": round}  # Python rounds halves to even
