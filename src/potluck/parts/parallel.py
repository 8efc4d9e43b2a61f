"""Independent pieces of tensor work side by side, each on one thread: its bits do not depend on how many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from potluck.core.threads import one_thread, own_threads

Item = TypeVar("Item")
Made = TypeVar("Made")


def in_parallel(work: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
    """What `work` makes of each item, in their order, on as many threads as this process may keep busy.

    >>> in_parallel(lambda n: torch.ones(n).sum().item(), [3, 1, 2])
    [3.0, 1.0, 2.0]
    """
    threads = min(own_threads(), len(items))
    with one_thread():  # also puts back the count for all threads to come, which those of the pool change
        if threads <= 1:
            return [work(item) for item in items]
        with ThreadPoolExecutor(threads, initializer=settle, initargs=(torch.is_grad_enabled(),)) as pool:
            return list(pool.map(work, items))


def settle(gradients: bool) -> None:
    """In a thread of the pool, which need not inherit either: compute alone, record gradients if the caller does."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(gradients)
