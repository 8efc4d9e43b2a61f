"""Jobs that belong together, as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from potluck.core.types import Job


def in_bundles(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    """The jobs bundle by bundle, none drawn before its bundle is asked for."""
    waiting = iter(jobs)
    for first in waiting:
        yield [first, *islice(waiting, first.bundle - 1)]
