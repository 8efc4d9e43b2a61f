"""Where the time goes: seconds by what they were spent on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Clock:
    """Adds up seconds. Of two things that run one inside the other, the inner one's time is not the outer one's."""

    seconds: dict[str, float] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    since: float = 0.0
    lumped: str = ""  # the one name that everything counts under, for a while

    @contextmanager
    def spent(self, what: str) -> Iterator[None]:
        """Time what happens inside; never around a `yield`, which hands the time to somebody else.

        >>> clock = Clock()
        >>> with clock.spent("aggregation"), clock.spent("transport"):
        ...     pass
        >>> sorted(clock.seconds)
        ['aggregation', 'transport']
        """
        self.turn()
        self.running.append(self.lumped or what)
        try:
            yield
        finally:
            self.turn()
            self.running.pop()

    @contextmanager
    def spent_in_all(self, what: str) -> Iterator[None]:
        """Time what happens inside as one thing, whatever is timed inside of it."""
        with self.spent(what):
            outer, self.lumped = self.lumped, self.lumped or what
            try:
                yield
            finally:
                self.lumped = outer

    def turn(self) -> None:
        """Give the time since the last turn to what has been running."""
        now = time.perf_counter()
        if self.running:
            what = self.running[-1]
            self.seconds[what] = self.seconds.get(what, 0.0) + now - self.since
        self.since = now
