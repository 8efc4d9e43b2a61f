"""What an engine is: it runs clients' jobs, lazily and in order, and knows no method."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from potluck.core.client import Site
from potluck.core.clock import Clock
from potluck.core.desk import Chore, Desk, Piece
from potluck.core.store import Store
from potluck.core.types import Job, Tensors, Update


class Engine(Protocol):
    """Runs clients. Where they run, and how many at once, changes no bit of any result.

    What a client is handed (payload and what stayed on it) is laid out plainly in memory, in every engine: see
    `core.tensors.laid_out`.
    """

    places: int
    """How many clients run at once."""

    def open(self, site: Site, desk: Desk, store: Store, clock: Clock) -> None:
        """Make ready to run clients of this site, and the server's own work.

        A simulating engine keeps in the store what stays on clients; on real devices it stays there. Time of this
        process is counted on the clock.
        """

    def map(self, bundles: Iterable[Sequence[Job]]) -> Iterator[Update]:
        """One update per job, in the order of the jobs, made as they are asked for.

        The jobs of a bundle run in one place, and are trained at once if they ask for training.
        """

    def share(self, chore: Chore, pieces: Iterable[Piece]) -> Iterator[Tensors]:
        """The server's own work, piece by piece in their order, on the server's own machine."""

    def close(self) -> None:
        """Let go of processes and memory."""
