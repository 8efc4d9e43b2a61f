"""From values to places on a plot: axes, their ticks, and the numbers written at them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

TINY = 1e-290  # below it floating-point numbers lose their digits


@dataclass(frozen=True)
class Axis:
    """From values to pixels, and where ticks are."""

    low: float
    high: float
    length: float
    logarithmic: bool = False
    whole: bool = False  # only whole numbers are ticks

    def at(self, value: float) -> float:
        """How many pixels along the axis a value is."""
        low, high, here = (math.log10(v) if self.logarithmic else v for v in (self.low, self.high, value))
        return self.length * (here - low) / (high - low)

    def ticks(self) -> list[float]:
        """Round numbers within its ends."""
        if not self.logarithmic:
            found = round_numbers(self.low, self.high)
            return [tick for tick in found if abs(tick - round(tick)) < 1e-9] if self.whole else found
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        every = math.ceil((last - first + 1) / 6)
        return [10.0**power for power in range(first, last + 1, every)]


def axis(values: Iterable[float], length: float, logarithmic: bool = False, room: float = 0.0) -> Axis:
    """An axis that holds all values that can be drawn, and on a linear one a share of room at both ends."""
    shown = [value for value in values if drawable(value, logarithmic)]
    low, high = min(shown, default=1.0), max(shown, default=1.0)
    if logarithmic:  # to whole decades, so that there are ticks
        low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
        return Axis(low, high if high > low else 10 * low, length, True)
    largest = max(abs(low), abs(high))
    least = 1e-3 * largest if largest > TINY else 1.0  # closer together, ticks would need too many digits
    if high - low < least:
        low, high = (low + high - least) / 2, (low + high + least) / 2
    free = room * (high - low)
    return Axis(low - free, high + free, length)


def drawable(value: float, logarithmic: bool) -> bool:
    """Whether a value has a place on an axis."""
    return math.isfinite(value) and (value > TINY or not logarithmic)


def round_numbers(low: float, high: float, most: int = 6) -> list[float]:
    """At most so many multiples of 1, 2 or 5 times a power of ten, between two numbers."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next((s for s in (power, 2 * power, 5 * power) if (high - low) / s < most), 10 * power)
    return [step * k for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def named(ticks: Sequence[float]) -> Iterator[tuple[float, str]]:
    """Ticks with their numbers, in as many digits as tell them apart."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    for tick in ticks:
        names = (short(tick, digits) for digits in range(1, 16))
        yield tick, next((name for name in names if abs(float(name) - tick) <= 1e-3 * step), short(tick))


def short(value: float, digits: int = 3) -> str:
    """A number with few digits, written as people do: 0.25, 1500, 3e-5."""
    written = f"{float(f'{value:.{digits}g}'):.{max(digits, 6)}g}"
    return written.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
