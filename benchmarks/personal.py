"""Runs whose clients keep a part of their models: what a larger population costs. Figures for people, never asserted.

Clients share the body of a network and keep their heads, fifty of them train in a round, and the run is recorded in a
temporary directory. Nothing should depend on how many clients there are: not the memory of the process that plays the
server, not what is written in a round (the checkpoint, and the files of clients whose heads changed), not a round's
time. Populations have their turns, each run in a fresh process; every ratio is the median of ratios to the smallest.
The first round of a run warms up and does not count.

python benchmarks/personal.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import ClassVar
from unittest.mock import patch

import torch
from figures import Figure, ratio, show
from memory import CLASSES, EXAMPLES, INPUTS, MIB, PAUSE, network, resident
from simulators import Stopwatch
from torch import nn

import potluck
from potluck.core.checkpoint import write_atomically
from potluck.core.method import Method, build_network
from potluck.core.tensors import copied, load, state_of
from potluck.core.types import Context, Job, Level, Tensors
from potluck.study.watchers import Record

POPULATIONS = (10**3, 10**4, 10**5)
KIB = 1 << 10
HIDDEN, COHORT, ROUNDS, REPEATS = 256, 50, 10, 3
WRITTEN = ("checkpoint", "personal")  # the places in a run's directory whose bytes are counted
MEASURED = {
    "memory": ("the parent's memory", "MiB"),
    "written": ("written in a round", "KiB"),
    "checkpoint": ("of it the checkpoint", "KiB"),
    "personal": ("of it what stays on clients", "KiB"),
    "seconds": ("a round", "s"),
}


@dataclass(frozen=True)
class OwnHeads(Method):
    """FedAvg of everything but the head, which stays on its client."""

    shares_model: ClassVar[bool] = False

    def init(self, ctx: Context) -> Tensors:
        return split(super().init(ctx), ctx)[0]

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        level = self.trains(job.client.level, ctx)
        net = ctx.once(build_network, level)
        load(net, {**job.payload, **(personal or ctx.once(first_head, level))})
        return net

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        return split(state_of(net), ctx)


def split(tensors: Tensors, ctx: Context) -> tuple[Tensors, Tensors]:
    """A network's body and its head."""
    head = ctx.task.head(ctx.task.largest)
    body = {name: tensor for name, tensor in tensors.items() if name not in head}
    return body, {name: tensors[name] for name in head}


def first_head(level: Level, ctx: Context) -> Tensors:
    """The head of a client that has not trained yet, for `ctx.once`."""
    return copied(split(state_of(ctx.build(level)), ctx)[1])


class Books(Stopwatch):
    """Times rounds, and counts what is written in each."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self.written: list[dict[str, int]] = []
        self.now = dict.fromkeys(WRITTEN, 0)

    def write(self, path: Path, content: bytes) -> None:
        """Write a file, and note how large it is."""
        place = path.relative_to(self.directory).parts[0]
        if place in self.now:
            self.now[place] += len(content)
        write_atomically(path, content)

    def round_done(self, record: Record) -> None:
        super().round_done(record)
        self.written.append(self.now)
        self.now = dict.fromkeys(WRITTEN, 0)


def run(clients: int, directory: Path) -> dict[str, float]:
    """One federation, in this process and two workers; the seconds and KiB of a round."""
    rng, books = torch.Generator().manual_seed(0), Books(directory)
    with patch("potluck.core.checkpoint.write_atomically", books.write):
        potluck.run(
            model=partial(network, HIDDEN),
            data=(torch.randn(EXAMPLES, INPUTS, generator=rng), torch.arange(EXAMPLES) % CLASSES),
            levels={"all": 1.0},
            method=OwnHeads(),
            clients=clients,
            cohort=COHORT,
            rounds=ROUNDS + 1,
            evaluate_every=ROUNDS + 1,
            partition="drawn",
            train=potluck.Train(lr=0.01, epochs=1, batch_size=10),
            workers=2,
            out=directory,
            watcher=books,
        )
    written = {place: sum(each[place] for each in books.written[1:]) / ROUNDS / KIB for place in WRITTEN}
    return {"seconds": (books.ended - books.started) / ROUNDS, **written, "written": sum(written.values())}


def measure(clients: int) -> dict[str, float]:
    """What a run in a process of its own tells, and the most MiB that this process had."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen([sys.executable, __file__, str(clients), f"{folder}/run"], stdout=told)
        most = 0
        while process.poll() is None:
            most = max(most, resident([process.pid]))
            time.sleep(PAUSE)
        if process.returncode:
            raise RuntimeError(f"the run of {clients:,} clients failed")
        told.seek(0)
        return {**json.load(told), "memory": most / MIB}


def compare(populations: Sequence[int]) -> list[Figure]:
    """All that is measured of larger populations, beside the smallest's."""
    found: dict[int, list[dict[str, float]]] = {clients: [] for clients in populations}
    for _ in range(REPEATS):
        for clients in populations:
            found[clients].append(measure(clients))
    smallest, *larger = populations
    figures = []
    for what, (title, unit) in MEASURED.items():
        values = {clients: [run[what] for run in runs] for clients, runs in found.items()}
        for clients in larger:
            one, other = (f"{median(values[size]):,.4g} {unit}" for size in (clients, smallest))
            growth = ratio(values[clients], values[smallest])
            name = f"{title}, {clients:,} clients against {smallest:,}"
            figures.append(Figure("personal", name, growth, "x", f"{one} and {other}"))
    return figures


def figures() -> list[Figure]:
    """All populations."""
    return compare(POPULATIONS)


def main() -> None:
    """All figures; with a number and a directory, the run of so many clients alone."""
    if sys.argv[1:]:
        print(json.dumps(run(int(sys.argv[1]), Path(sys.argv[2]))))
    else:
        show(figures())


if __name__ == "__main__":
    main()
