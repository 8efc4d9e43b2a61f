"""How many threads compute: one for each piece of work, wherever bits matter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Made = TypeVar("Made")


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


def in_parallel(work: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
    """What `work` makes of each item, in their order, on as many threads as this process may keep busy.

    >>> in_parallel(lambda n: torch.ones(n).sum().item(), [3, 1, 2])
    [3.0, 1.0, 2.0]
    """
    threads = min(own_threads(), len(items))
    with one_thread():  # also puts back the count for all threads to come, which those of the pool change
        if threads <= 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(threads, initializer=prepare_thread, initargs=(torch.is_grad_enabled(),)) as pool:
            return list(pool.map(work, items))


def prepare_thread(gradients: bool) -> None:
    """In a thread of the pool, which need not inherit either: compute alone, record gradients if the caller does."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(gradients)
