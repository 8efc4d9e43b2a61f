"""An engine with some of its workers only, since starting worker processes takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from potluck.engines.local import Local


@contextmanager
def crew(engine: Local, count: int) -> Iterator[Local]:
    """The same engine with so many workers, for a while; workers that it lacks are started and stopped again."""
    places, resting = engine.places, engine.workers[count:]
    engine.places, engine.workers = count, engine.workers[:count]
    try:
        yield engine
    finally:
        for extra in engine.workers[places:]:
            extra.stop()
        engine.places, engine.workers = places, [*engine.workers[:places], *resting]
