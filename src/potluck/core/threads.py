"""How many threads compute: one, wherever bits matter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: how sums are split over threads would show in the last bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_threads() -> int:
    """How many threads this process may keep busy: one per core, or as many as it was told when it started."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores(), int(told)) if told.isdigit() and int(told) else cores()
