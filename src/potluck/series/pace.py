"""How fast this machine trains, and so how long a paper's experiment would take on it: an estimate, no measurement."""

from __future__ import annotations

import time
from functools import cache

import torch
from torch import nn

from potluck.core.threads import cores, one_thread

MINIMUM = 0.5  # seconds of training that are timed
BATCH, CHANNELS, SIZE = 32, 32, 16
MACS = BATCH * CHANNELS * CHANNELS * 9 * SIZE * SIZE  # of a convolution of the probe, forward
LAYERS = 4


@cache
def macs_per_second() -> float:
    """The MACs, counted forward as the books count them, that all cores train in a second: of a few convolutions.

    Small networks reach less, since calls of PyTorch take most of their time.
    """
    layers = [layer for _ in range(LAYERS) for layer in (nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.ReLU())]
    images = torch.zeros(BATCH, CHANNELS, SIZE, SIZE)
    with one_thread():
        net = nn.Sequential(*layers)
        net(images).sum().backward()  # warms up
        steps, started = 0, time.perf_counter()
        while time.perf_counter() - started < MINIMUM:
            net(images).sum().backward()
            steps += 1
        return cores() * steps * LAYERS * MACS / (time.perf_counter() - started)
