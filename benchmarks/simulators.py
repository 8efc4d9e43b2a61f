"""Client trainings per second beside a bare PyTorch loop, pfl and Flower's simulation: for people, never asserted.

Everybody runs the same federation in turn, several times; every ratio is the median of ratios measured side by side.
Without `make bench-rivals` the rivals' lines say that they are not installed.

python benchmarks/simulators.py [lr] [cnn]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import bare
from figures import Figure, in_turns, matrix_peak, ratio, show
from tasks import CLIENTS, COHORT, CONTESTS, EXAMPLES, Contest, InOrder

import potluck
from potluck.core.threads import cores
from potluck.parts.cost.level import count_macs
from potluck.study.tuning import Timed
from potluck.study.watchers import Nobody, Record

HERE = Path(__file__).parent
RIVALS = HERE.parent / ".venv-rivals" / "bin" / "python"
REPEATS = 3
ATTEMPTS = 3  # of a rival; processes of pfl sometimes do not find each other


class Stopwatch(Nobody):
    """Times the rounds after the first, which warms up."""

    def __init__(self) -> None:
        self.started = self.ended = 0.0
        self.ways: Mapping[str, str] = {}

    def tuned(self, ways: Mapping[str, str], timed: Timed) -> None:
        self.ways = ways

    def round_done(self, record: Record) -> None:
        if record["round"] == 1:
            self.started = time.perf_counter()
        self.ended = time.perf_counter() - record["seconds_evaluation"]


def ours(contest: Contest, step: str | dict[str, str], workers: int = 0, note: dict[str, str] | None = None) -> float:
    """How many clients Potluck trains in a second."""
    watch = Stopwatch()
    potluck.run(
        model=contest.model,
        data=contest.dataset(),
        levels={"full": 1.0},
        clients=CLIENTS,
        rounds=contest.rounds + 1,
        method="fedavg",
        partition=InOrder(),
        train=contest.train(),
        cohort=COHORT,
        evaluate_every=10**9,
        workers=workers,
        step=step,
        watcher=watch,
    )
    if note is not None:
        note.update(watch.ways)
    return contest.rounds * COHORT / (watch.ended - watch.started)


def rival(script: str, contest: Contest, data: Path, processes: int, rounds: int, *form: str) -> float:
    """How many clients a rival trains in a second."""
    command = [str(RIVALS), str(HERE / "rivals" / script), contest.name, "--data", str(data)]
    command += ["--rounds", str(rounds), "--processes", str(processes), *form]
    for _ in range(ATTEMPTS):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not done.returncode:
            found = json.loads(done.stdout.splitlines()[-1])
            return float(found["trainings"] / found["seconds"])
    raise RuntimeError(f"{script} failed {ATTEMPTS} times:\n{done.stderr}")


def contestants(contest: Contest, data: Path, tuned: dict[str, str]) -> dict[str, Callable[[], float]]:
    """Everybody who takes part."""
    entered: dict[str, Callable[[], float]] = {
        "Potluck, plain": partial(ours, contest, "plain"),
        "Potluck, default": partial(ours, contest, "counted"),
        "Potluck, tuned": partial(ours, contest, "auto", note=tuned),
        f"bare loop, {cores()} processes": partial(bare.trainings_per_second, contest.name, cores()),
    }
    if RIVALS.exists():
        flower = partial(rival, "flower_rival.py", contest, data, cores(), max(1, contest.rounds // 10))
        entered |= {
            "pfl, 1 process": partial(rival, "pfl_rival.py", contest, data, 1, contest.rounds),
            f"pfl, {cores()} processes": partial(rival, "pfl_rival.py", contest, data, cores(), contest.rounds),
            "Flower's simulation": flower,
            "Flower's simulation, as in its tutorials": partial(flower, "--tutorial"),
        }
    return entered


def figures(names: list[str] | None = None) -> list[Figure]:
    """The contests asked for, all of them if none is."""
    found = []
    for name in names or list(CONTESTS):
        contest, tuned = CONTESTS[name], dict[str, str]()
        with tempfile.TemporaryDirectory() as folder:
            data = contest.write(Path(folder))
            rates = in_turns(contestants(contest, data, tuned), REPEATS)
        plain, usual, best = (rates[f"Potluck, {step}"] for step in ("plain", "default", "tuned"))
        for who, measured in rates.items():
            spread = f"{min(measured):,.4g} to {max(measured):,.4g}"
            sides = {"tuned": best, "default": usual, "plain": plain}
            note = ", ".join(f"{side} is {ratio(own, measured):.2f}x of it" for side, own in sides.items())
            note = f"training steps: {tuned.get('full')}" if measured is best else note
            found.append(Figure(contest.title, who, median(measured), "trainings/s", f"{spread}; {note}"))
        if not RIVALS.exists():
            found.append(Figure(contest.title, "pfl, Flower", float("nan"), "", "not installed; make bench-rivals"))
        macs = count_macs(contest.model(1.0), contest.tensors()["test_x"][:1])
        reached = 3 * 2 * macs * EXAMPLES * median(best) / 1e9  # forward, and twice as much backward
        peak = cores() * matrix_peak()
        beside = f"{reached:.0f} of {peak:.0f} GFLOP/s"
        found.append(Figure(contest.title, "of the matrix-multiply peak, tuned", 100 * reached / peak, "%", beside))
    return found


if __name__ == "__main__":
    show(figures(sys.argv[1:]))
