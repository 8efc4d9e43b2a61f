"""Looking at processes from outside."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether a process still runs; one that nobody has asked for its exit code yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pids: Iterable[int], within: float) -> bool:
    """Whether all of these processes end in time."""
    end = time.monotonic() + within
    waiting = list(pids)
    while waiting and time.monotonic() < end:
        waiting = [pid for pid in waiting if alive(pid)]
        time.sleep(0.05)
    return not waiting
