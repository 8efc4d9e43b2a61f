"""What a setting may be, where its type alone would let nonsense in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

MOST = 10**9  # of anything that is counted: more is a slip, and would overflow somewhere
LARGEST = 1e30  # of what multiplies weights: with more, a single step leaves float32

Count = Annotated[int, Interval(ge=1, le=MOST)]
Index = Annotated[int, Interval(ge=0, le=MOST)]


@dataclass(frozen=True)
class Should:
    """In `Annotated`: what a setting should be, in words for an error, if those of its types and ranges are no help."""

    be: str


Factor = Annotated[float, Interval(ge=0, le=LARGEST), Should("a number from 0 to 1e30")]
