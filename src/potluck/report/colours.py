"""The colours of values and of lines."""

from __future__ import annotations

from collections.abc import Sequence

SHADES = 32  # of each sign in a heatmap
NEGATIVE, POSITIVE, MISSING = (33, 102, 172), (178, 24, 43), "#999999"
FIRST_TO_LAST = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (240, 180, 20))


def shade(number: int) -> str:
    """The colour of a value in `SHADES` steps from 0 to the limit."""
    if abs(number) > SHADES:
        return MISSING
    return mixed((255, 255, 255), NEGATIVE if number < 0 else POSITIVE, abs(number) / SHADES)


def mixed(one: Sequence[int], other: Sequence[int], share: float) -> str:
    """A colour on the way from one to another."""
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(one, other, strict=True))


def ramp(count: int) -> list[str]:
    """So many colours, from dark to light in order."""
    found = []
    for place in range(count):
        along = place / max(count - 1, 1) * (len(FIRST_TO_LAST) - 1)
        stop = min(int(along), len(FIRST_TO_LAST) - 2)
        found.append(mixed(FIRST_TO_LAST[stop], FIRST_TO_LAST[stop + 1], along - stop))
    return found
