"""What all benchmarks share: contests in which everybody has a turn, and figures to print and to save."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One measured number, with what it is to be read beside."""

    benchmark: str
    what: str
    value: float
    unit: str
    beside: str = ""


def seconds(work: Callable[[], object]) -> float:
    """How long something takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turns(contestants: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """What every contestant measures, one after the other, again and again: what disturbs one disturbs all."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, measure in contestants.items():
            found[name].append(measure())
    return found


def ratio(ours: Iterable[float], theirs: Iterable[float]) -> float:
    """The median of ratios of what was measured side by side."""
    return median(one / other for one, other in zip(ours, theirs, strict=True))


def matrix_peak(size: int = 1024, repeats: int = 9) -> float:
    """What one thread reaches at best when it multiplies matrices, in GFLOP/s: the machine's own peak."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    one, other = torch.rand(size, size), torch.rand(size, size)
    took = min(seconds(lambda: one @ other) for _ in range(repeats))
    torch.set_num_threads(threads)
    return 2 * size**3 / took / 1e9


def show(figures: Iterable[Figure]) -> None:
    """Figures as a table."""
    table = Table(title_justify="left")
    for name in ("benchmark", "what", "value", "", "beside"):
        table.add_column(name, justify="right" if name == "value" else "left", overflow="fold")
    for figure in figures:
        shown = f"{figure.value:.3g}" if abs(figure.value) < 1000 else f"{figure.value:,.0f}"
        table.add_row(figure.benchmark, figure.what, shown, figure.unit, figure.beside)
    Console(width=140).print(table)


def save(figures: Iterable[Figure], path: Path) -> None:
    """Figures as JSON, with the machine they are from."""
    machine = {"processor": processor(), "torch": torch.__version__, "python": platform.python_version()}
    path.write_text(json.dumps({"machine": machine, "figures": [asdict(figure) for figure in figures]}, indent=1))


def processor() -> str:
    """The processor's name, if the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
