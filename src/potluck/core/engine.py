"""What an engine is: it maps work over jobs, lazily and in order, and knows no method."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from potluck.core.client import Site, Work
from potluck.core.clock import Clock
from potluck.core.types import Job, Tensors, Update


class Engine(Protocol):
    """Runs clients. Where they run, and how many at once, changes no bit of any result."""

    personal: dict[int, Tensors]
    """What stays on each client, by client id; a simulating engine keeps it for them."""

    places: int
    """How many clients run at once."""

    clock: Clock
    """Where this process's time goes."""

    def open(self, site: Site) -> None:
        """Make ready to run clients of this site."""

    def map(self, work: Work, jobs: Iterable[Job]) -> Iterator[Update]:
        """One update per job, in the order of the jobs, made as they are asked for.

        The jobs of a bundle run in one place, at once if the work is training.
        """

    def close(self) -> None:
        """Let go of processes and memory."""
