"""The generators that a user's code draws from: PyTorch's, NumPy's and Python's own, seeded for a while.

This is the only place that touches the last two: a data set that augments its items at random may use any of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def own_draws(seed: int) -> Iterator[None]:
    """Seed all generators, and put them back as they were in the end."""
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    seed_all(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])
        random.setstate(before[2])


def seed_all(seed: int) -> None:
    """Seed all generators with a number of up to 63 bits."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def states() -> tuple[bytes, bytes, object]:
    """Where all generators are, for comparing."""
    _, key, position, *rest = np.random.get_state(legacy=True)
    numpy_state = bytes(np.asarray(key).tobytes()) + repr((position, *rest)).encode()
    return torch.get_rng_state().numpy().tobytes(), numpy_state, random.getstate()
