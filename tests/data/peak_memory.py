"""How much memory something takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MEGABYTE = 1 << 20


@dataclass
class Peak:
    """The most bytes that were in use at once, beyond those from before; of tensors only what Python or numpy made."""

    bytes: int = 0


@contextmanager
def measured() -> Iterator[Peak]:
    """Measure what is allocated inside."""
    peak = Peak()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield peak
    finally:
        peak.bytes = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
