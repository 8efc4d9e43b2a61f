"""What it costs that every update is checked: the guard's share of a round. Figures for people, never asserted.

HeteroFL on the local engine, plain training steps unless told otherwise, a learning rate at which nothing diverges:
every update is checked to the end. Timed are the processor seconds that the server spends on finding out what to expect
and on checking it. The run's own clock would also count how long the server waits for a core, where all cores train.
What a round takes with the guard and with one that checks nothing is told beside it, in turns; there the machine's
moods are larger than the guard. The first round of a run, in which the forms of honest answers are found once for each
level, is left out.

python benchmarks/guard.py [lr] [lr-default] [cnn] [resnet18]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any
from unittest.mock import patch

from figures import Figure, show
from tasks import CLIENTS, CONTESTS, Contest, InOrder
from torch import nn

import potluck
from potluck.core.data import evenly_spaced
from potluck.core.guard import Guard, expected
from potluck.models.catalogue import find_model
from potluck.study.watchers import Nobody, Record

REPEATS = 5
SCORED = 100  # test examples: scoring is not what is timed
GENTLE = 0.01  # the learning rate: nothing diverges, so every update is checked to the end


@dataclass(frozen=True)
class Federation:
    """What is played: a network at some widths, on a contest's data."""

    title: str
    model: Callable[[float], nn.Module]
    contest: Contest
    widths: tuple[float, ...]
    cohort: int
    rounds: int
    step: str = "plain"


LR, CNN = CONTESTS["lr"], CONTESTS["cnn"]
FEDERATIONS = {
    "lr": Federation(LR.title, LR.model, LR, (1.0,), 50, rounds=40),
    "lr-default": Federation(f"{LR.title}, default step", LR.model, LR, (1.0,), 50, rounds=40, step="counted"),
    "cnn": Federation(CNN.title, CNN.model, CNN, (1.0, 0.5, 0.25, 0.125, 0.0625), 50, rounds=4),
    "resnet18": Federation("ResNet-18", find_model("resnet18"), CNN, (1.0, 0.5, 0.25, 0.125), 8, rounds=2),
}


@contextmanager
def timed() -> Iterator[list[float]]:
    """Note the processor seconds of all that the guard does."""
    spent: list[float] = []

    def noting(work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: object) -> Any:
            start = time.thread_time()
            try:
                return work(*args)
            finally:
                spent.append(time.thread_time() - start)

        return noted

    with patch.object(Guard, "check", noting(Guard.check)), patch("potluck.core.server.expected", noting(expected)):
        yield spent


@contextmanager
def left_out() -> Iterator[list[float]]:
    """Check nothing, and expect nothing."""
    with (
        patch.object(Guard, "check", lambda *asked: None),
        patch("potluck.core.server.expected", lambda *asked: {}),
    ):
        yield []


@dataclass
class Rounds(Nobody):
    """When every round was over, and how long the guard had taken by then; the last round is followed by scoring."""

    guard: list[float]
    over: list[tuple[float, float]] = field(default_factory=list)

    def round_done(self, record: Record) -> None:
        if record["failures"]:
            raise RuntimeError(f"round {record['round']} lost updates: it says nothing about checking good ones")
        self.over.append((time.perf_counter(), sum(self.guard)))

    def per_round(self) -> tuple[float, float]:
        """The seconds of a round, and those of the guard in it, between the first round and the last."""
        (start, before), *_, (end, after), _ = self.over
        return (end - start) / (len(self.over) - 2), (after - before) / (len(self.over) - 2)


def play(federation: Federation, guard: Callable[[], AbstractContextManager[list[float]]]) -> tuple[float, float]:
    """The seconds of a round, and those of the guard in it."""
    data = federation.contest.dataset()
    with guard() as spent:
        watch = Rounds(spent)
        potluck.run(
            model=federation.model,
            data=replace(data, test=evenly_spaced(data.test, SCORED)),
            levels={f"{width:g}": width for width in federation.widths},
            clients=CLIENTS,
            rounds=federation.rounds + 2,
            method="heterofl",
            partition=InOrder(),
            train=replace(federation.contest.train(), lr=GENTLE),
            cohort=federation.cohort,
            evaluate_every=10**9,
            calibration_clients=1,
            step=federation.step,
            watcher=watch,
        )
    return watch.per_round()


def compare(federation: Federation) -> list[Figure]:
    """The guard's share of a round, and how long rounds are with it and without."""
    guarded, bare = [], []
    for _ in range(REPEATS):
        guarded.append(play(federation, timed))
        bare.append(play(federation, left_out)[0])
    share = median(spent / whole for whole, spent in guarded)
    spent, with_it = (median(numbers) for numbers in zip(*[(spent, whole) for whole, spent in guarded], strict=True))
    each = f"{1e6 * spent / federation.cohort:.3g} µs for each of {federation.cohort} clients"
    beside = f"{each}; a round takes {1e3 * with_it:.4g} ms with it, {1e3 * median(bare):.4g} ms without"
    return [Figure("guard", f"{federation.title}, share of a round", 100 * share, "%", beside)]


def figures(names: list[str] | None = None) -> list[Figure]:
    """The federations asked for, all of them if none is."""
    return [figure for name in names or list(FEDERATIONS) for figure in compare(FEDERATIONS[name])]


if __name__ == "__main__":
    show(figures(sys.argv[1:]))
