"""All benchmarks one after the other, as a table and as a JSON file: figures for people, never asserted.

python benchmarks/all.py bench.json [NAME ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import aggregation
import fedhm_server
import heterogeneity
import mapped
import memory
import personal
import simulators
import startup
import steps
import workers
from figures import Figure, matrix_peak, save, show

import guard


def machine() -> list[Figure]:
    """What this machine can do."""
    return [Figure("machine", "multiplying matrices on one thread", matrix_peak(), "GFLOP/s")]


BENCHMARKS: dict[str, Callable[[], list[Figure]]] = {
    "machine": machine,
    "startup": startup.figures,
    "simulators": simulators.figures,
    "heterogeneity": heterogeneity.figures,
    "fedhm_server": fedhm_server.figures,
    "aggregation": aggregation.figures,
    "guard": guard.figures,
    "memory": memory.figures,
    "mapped": mapped.figures,
    "personal": personal.figures,
    "steps": steps.figures,
    "workers": workers.figures,
}


def main(path: Path, names: list[str]) -> None:
    """Run these, all of them if none is named; what is finished is shown and saved at once."""
    found: list[Figure] = []
    for name in names or list(BENCHMARKS):
        figures = BENCHMARKS[name]()
        show(figures)
        found += figures
        save(found, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
