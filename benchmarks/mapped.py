"""Memory of a run whose data lie in a file of 20 GB, beside one of 20 MB: a file that is mapped should cost nothing.

Each run has a parent and two workers, in fresh processes. Counted is the memory that the three wrote, what they share
once, looked at twenty times a second; the peak is told. Pages of files do not count, neither of programs nor of the
data: the system keeps them for as long as nobody else needs the room. The file is sparse, so it takes no room on the
disk; labels are in memory. A fifth of the examples is held out and scored.

python benchmarks/mapped.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from figures import Figure, show
from memory import peak_of, written
from torch import nn

import potluck

LARGE, SMALL = 20 * 10**9, 20 * 10**6  # bytes
INPUTS, CLASSES, HIDDEN = 16_384, 10, 64
CLIENTS, COHORT, ROUNDS = 200, 10, 4
PERMITTED = 1.2  # what the larger file may need beside the smaller: labels, who holds what, and batches that are full


def run(path: Path) -> None:
    """One federation on the numbers of a file, in this process and two workers."""
    inputs = np.memmap(path, np.float32, "r").reshape(-1, INPUTS)
    potluck.run(
        model=nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)),
        data=(inputs, np.arange(len(inputs)) % CLASSES),
        levels={"large": 1.0, "small": 0.5},
        clients=CLIENTS,
        cohort=COHORT,
        rounds=ROUNDS,
        evaluate_every=ROUNDS,
        train=potluck.Train(lr=0.01, epochs=1, batch_size=10),
        workers=2,
        watcher=None,
    )


def peak(size: int) -> float:
    """The most MiB that a run on a file of this size had at once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inputs"
        with path.open("wb") as file:
            file.truncate(size - size % (4 * INPUTS))
        return peak_of([__file__, str(path)], written)


def figures() -> list[Figure]:
    """Both files, and their ratio."""
    large, small = peak(LARGE), peak(SMALL)
    beside = f"{large:,.0f} MiB and {small:,.0f} MiB; less than {PERMITTED:g} is the aim"
    return [Figure("mapped", "memory on a file of 20 GB against 20 MB", large / small, "x", beside)]


def main() -> None:
    """All figures; with a path, the run on that file alone."""
    if sys.argv[1:]:
        run(Path(sys.argv[1]))
    else:
        show(figures())


if __name__ == "__main__":
    main()
