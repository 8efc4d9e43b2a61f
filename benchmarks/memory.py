"""Memory of a run that has many clients, and of one whose rounds have many: neither should need more.

Every federation runs in a fresh process with two workers. What counts is the memory of all three together, what they
share counted once, looked at twenty times a second; the peak is told. Data are made up.

python benchmarks/memory.py
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from figures import Figure, show
from torch import nn

import potluck

EXAMPLES, INPUTS, CLASSES = 10_000, 784, 10
PAUSE = 0.05  # seconds between two looks
MIB = 1 << 20
PERMITTED = 10  # percent that the largest federation may need more than the smallest


@dataclass(frozen=True)
class Federation:
    """What is run: hidden units of the network (0: logistic regression), clients, clients a round, rounds."""

    hidden: int
    clients: int
    cohort: int
    rounds: int


POPULATIONS = [Federation(0, clients, 50, rounds=6) for clients in (10**3, 10**4, 10**5, 10**6)]
COHORTS = [Federation(2048, 10**4, cohort, rounds=2) for cohort in (10, 50, 200, 1000)]  # 1.6 million parameters


def network(hidden: int, width: float = 1.0) -> nn.Module:
    """One linear layer, or two."""
    if not hidden:
        return nn.Sequential(nn.Linear(INPUTS, CLASSES))
    return nn.Sequential(nn.Linear(INPUTS, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))


def run(federation: Federation) -> None:
    """One federation, in this process and two workers."""
    rng = torch.Generator().manual_seed(0)
    potluck.run(
        model=partial(network, federation.hidden),
        data=(torch.randn(EXAMPLES, INPUTS, generator=rng), torch.arange(EXAMPLES) % CLASSES),
        levels={"all": 1.0},
        method="fedavg",
        clients=federation.clients,
        cohort=federation.cohort,
        rounds=federation.rounds,
        evaluate_every=federation.rounds,
        partition="drawn",
        train=potluck.Train(lr=0.01, epochs=1, batch_size=10),
        workers=2,
        watcher=None,
    )


def peak(federation: Federation) -> float:
    """The most MiB that such a run and its workers had at once."""
    numbers = (federation.hidden, federation.clients, federation.cohort, federation.rounds)
    return peak_of([__file__, *map(str, numbers)], resident)


def peak_of(command: Sequence[str], counted: Callable[[list[int]], int]) -> float:
    """The most MiB that a script and its workers had at once, of what is counted."""
    process = subprocess.Popen([sys.executable, *command])
    most = 0
    while process.poll() is None:
        most = max(most, counted(family(process.pid)))
        time.sleep(PAUSE)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed")
    return most / MIB


def family(process: int) -> list[int]:
    """A process, its children, theirs, and so on."""
    try:
        found = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:  # it has ended
        return []
    children = [int(child) for line in found for child in line.split()]
    return [process, *(member for child in children for member in family(child))]


def resident(processes: list[int]) -> int:
    """The bytes of memory that processes have together.

    What they wrote, each its part of what they share; and of programs and libraries, the most that one of them has: the
    system's own count of those depends on who else on the machine uses them.
    """
    files = [sizes(f"/proc/{process}/status").get("RssFile", 0) for process in processes]
    return written(processes) + max(files, default=0)


def written(processes: list[int]) -> int:
    """The bytes of memory that processes wrote, what they share counted once; nothing of any file."""
    own = [sizes(f"/proc/{process}/smaps_rollup") for process in processes]
    return sum(each.get("Pss_Anon", 0) + each.get("Pss_Shmem", 0) for each in own)


def sizes(table: str) -> dict[str, int]:
    """The lines of a table of the system's that give a size, in bytes."""
    try:
        lines = Path(table).read_text().splitlines()
    except OSError:  # the process has ended
        return {}
    found = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(size) << 10 for name, size, _ in found}


def compare(what: str, sizes: list[int], federations: list[Federation]) -> list[Figure]:
    """The memory of every federation, and how much more the last needs than the first."""
    found = [peak(federation) for federation in federations]
    growth = Figure(
        "memory",
        f"{what} {sizes[-1]:,} against {sizes[0]:,}",
        100 * (found[-1] / found[0] - 1),
        "% more",
        f"less than {PERMITTED} % is the aim",
    )
    each = [Figure("memory", f"{what} {size:,}", mib, "MiB") for size, mib in zip(sizes, found, strict=True)]
    return [growth, *each]


def figures() -> list[Figure]:
    """By the number of clients, and by how many of them a round has."""
    return [
        *compare("clients", [federation.clients for federation in POPULATIONS], POPULATIONS),
        *compare("clients a round", [federation.cohort for federation in COHORTS], COHORTS),
    ]


def main() -> None:
    """All figures; with numbers, the run of that federation alone."""
    if sys.argv[1:]:
        run(Federation(*map(int, sys.argv[1:])))
    else:
        show(figures())


if __name__ == "__main__":
    main()
