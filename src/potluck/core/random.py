"""Keyed randomness: every draw depends on (seed, key), never on the order of calls."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def number(seed: int, *key: object) -> int:
    """A 63-bit number that only (seed, key) decides."""
    digest = hashlib.sha256(repr((seed, *key)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def stream(seed: int, *key: object) -> torch.Generator:
    """A generator of its own for one purpose.

    >>> a, b = stream(0, "cohort", 3), stream(0, "cohort", 3)
    >>> bool((torch.rand(4, generator=a) == torch.rand(4, generator=b)).all())
    True
    """
    return torch.Generator().manual_seed(number(seed, *key))


@contextmanager
def seeded(seed: int, *key: object) -> Iterator[None]:
    """Seed PyTorch's global generators (initialisers, dropout) for a while, then put the CPU's back as it was.

    torch.manual_seed would do, but it leaves a note with a stack trace for every kind of device that is not there: most
    of the time of training a small network.
    """
    before, drawn = torch.get_rng_state(), number(seed, *key)
    torch.default_generator.manual_seed(drawn)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(drawn)
    try:
        yield
    finally:
        torch.set_rng_state(before)
