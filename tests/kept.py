"""Workers that one test leaves to the next. Starting them takes longer than what most tests do with them."""

from __future__ import annotations

import sys

from potluck.engines.board import Board
from potluck.engines.local import Local
from potluck.engines.process import Worker
from potluck.engines.slot import Slot

MOST = 2  # workers of an engine that are kept

Workers = tuple[list[Worker], tuple[Slot, Board]]

kept: dict[int, tuple[list[str], Workers]] = {}  # how many workers to where they find modules, and the workers
open_as_usual, close_as_usual = Local.open, Local.close


def open_with_kept(engine: Local, *arguments: object) -> None:
    """Open an engine with workers of an earlier one, if they would look for modules in the same places."""
    found = kept.get(engine.places)
    if not engine.workers and found is not None and found[0] == sys.path:
        engine.workers, engine.shared = kept.pop(engine.places)[1]
    engine.began_with = list(sys.path)  # type: ignore[attr-defined]
    open_as_usual(engine, *arguments)  # type: ignore[arg-type]


def close_and_keep(engine: Local) -> None:
    """Close an engine, and keep its workers if they live, have nothing to do and no memory that is still read."""
    sound = len(engine.workers) == engine.places <= MOST and all(map(is_idle, engine.workers))
    if sound and engine.shared is not None and engine.places not in kept:
        kept[engine.places] = engine.began_with, (engine.workers, engine.shared)  # type: ignore[attr-defined]
        engine.workers, engine.shared = [], None
    close_as_usual(engine)


def is_idle(worker: Worker) -> bool:
    """Whether a worker lives, and nothing of it is awaited or read."""
    return worker.process.poll() is None and not worker.assigned and not any(slot.lent for slot in worker.slots)
