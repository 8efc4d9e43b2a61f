"""How long data take: loading a set, and their share of a training epoch. Figures for people, never asserted.

POTLUCK_DATA=… python benchmarks/data.py
"""

from __future__ import annotations

import time

import torch

from potluck.core.batches import batches
from potluck.core.data import Examples, Part
from potluck.core.errors import DataError
from potluck.core.fit import fit
from potluck.core.goals.classes import Classes
from potluck.core.random import stream
from potluck.core.types import Phase, Train
from potluck.data import sources
from potluck.models.catalogue import catalogue

PAIRS = {"digits": "heterofl-cnn", "mnist": "heterofl-cnn", "fashion-mnist": "flanc-cnn", "cifar10": "resnet18"}
EXAMPLES = 640  # of an epoch: enough for a share
BATCH = 32


def timed_batches(examples: Examples) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], float]:
    """An epoch's batches, and the seconds it took to make them."""
    held = Part(examples, torch.arange(min(EXAMPLES, len(examples))))
    started = time.perf_counter()
    made = list(batches(held, BATCH, 1, stream(0, "bench")))
    return made, time.perf_counter() - started


def main() -> None:
    """One line per data set."""
    torch.set_num_threads(1)
    print(f"{'data set':<15}{'load':>9}{'network':>16}{'epoch':>10}{'of it data':>12}")
    for name, network in PAIRS.items():
        started = time.perf_counter()
        try:
            data = sources.load(name)
        except DataError as error:
            print(f"{name:<15} skipped: {str(error).split(':')[0]}")
            continue
        loading = time.perf_counter() - started
        shape = tuple(data.train.take(torch.tensor([0]))[0].shape[1:])
        net = catalogue()[network](1.0, shape=shape, classes=data.classes)
        made, preparing = timed_batches(data.train)
        started = time.perf_counter()
        fit(net, Phase(Classes()), made, Train())
        epoch = preparing + time.perf_counter() - started
        print(f"{name:<15}{loading:>8.2f}s{network:>16}{epoch:>9.2f}s{preparing / epoch:>12.2%}")


if __name__ == "__main__":
    main()
