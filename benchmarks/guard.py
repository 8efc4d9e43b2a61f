"""What it costs that every update is checked: the guard's share of a round. Figures for people, never asserted.

HeteroFL on the local engine, plain training steps. The guard's own seconds are told by the run's clock; they pass while
workers train, so a round need not be longer by as much. Therefore the same rounds are also played with a guard that
checks nothing and is told nothing of what to expect, in turns. The first round of a run, in which the forms of honest
answers are found once for each level, warms up and is told apart.

python benchmarks/guard.py [lr] [cnn] [resnet18]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from unittest.mock import patch

from figures import Figure, in_turns, ratio, show
from tasks import CLIENTS, CONTESTS, Contest, InOrder
from torch import nn

import potluck
from potluck.core.data import evenly_spaced
from potluck.core.form import Form
from potluck.core.guard import Guard
from potluck.core.method import Method
from potluck.core.types import Context, Job, Update
from potluck.models.catalogue import find_model
from potluck.study.watchers import Nobody, Record

REPEATS = 5
SCORED = 100  # test examples: scoring is not what is timed


@dataclass(frozen=True)
class Federation:
    """What is played: a network at some widths, on a contest's data."""

    title: str
    model: Callable[[float], nn.Module]
    contest: Contest
    widths: tuple[float, ...]
    cohort: int
    rounds: int


LR, CNN = CONTESTS["lr"], CONTESTS["cnn"]
FEDERATIONS = {
    "lr": Federation(LR.title, LR.model, LR, (1.0,), 50, rounds=40),
    "cnn": Federation(CNN.title, CNN.model, CNN, (1.0, 0.5, 0.25, 0.125, 0.0625), 50, rounds=4),
    "resnet18": Federation("ResNet-18", find_model("resnet18"), CNN, (1.0, 0.5, 0.25, 0.125), 8, rounds=2),
}


class Unwatchful(Guard):
    """A guard that checks nothing."""

    def check(self, update: Update, job: Job, form: Form) -> None:
        pass


def nothing_expected(method: Method, job: Job, ctx: Context) -> Form:
    """In the place of the form of an honest answer."""
    return {}


@contextmanager
def unguarded() -> Iterator[None]:
    """Have no server derive what to expect."""
    with patch("potluck.core.server.expected", nothing_expected):
        yield


@dataclass
class Seconds(Nobody):
    """Of every round the seconds of all but its evaluation, and those of the guard."""

    rounds: list[float] = field(default_factory=list)
    guard: list[float] = field(default_factory=list)

    def round_done(self, record: Record) -> None:
        self.rounds.append(record["seconds_training"])
        self.guard.append(record["seconds_by_part"]["guard"])


def play(federation: Federation, guarded: bool, noted: list[Seconds]) -> float:
    """The seconds of a round after the first; more is noted."""
    watch, data = Seconds(), federation.contest.dataset()
    with nullcontext() if guarded else unguarded():
        potluck.run(
            model=federation.model,
            data=replace(data, test=evenly_spaced(data.test, SCORED)),
            levels={f"{width:g}": width for width in federation.widths},
            clients=CLIENTS,
            rounds=federation.rounds + 1,
            method="heterofl",
            partition=InOrder(),
            train=federation.contest.train(),
            guard=Guard() if guarded else Unwatchful(),
            cohort=federation.cohort,
            evaluate_every=10**9,
            calibration_clients=1,
            step="plain",
            watcher=watch,
        )
    noted.append(watch)
    return sum(watch.rounds[1:]) / federation.rounds


def compare(federation: Federation) -> list[Figure]:
    """The guard's share of a round by the clock, and by leaving it out."""
    checked: list[Seconds] = []
    contestants = {
        "with": partial(play, federation, True, checked),
        "without": partial(play, federation, False, []),
    }
    took = in_turns(contestants, REPEATS)
    share = median(sum(run.guard[1:]) / sum(run.rounds[1:]) for run in checked)
    own = median(sum(run.guard[1:]) / federation.rounds for run in checked)
    first = median(run.guard[0] for run in checked)
    with_it, without = (median(took[name]) for name in contestants)
    by_clock = f"{1e3 * own:.3g} ms of {1e3 * with_it:.4g} ms; {1e3 * first:.3g} ms in the first round"
    more = 100 * (ratio(took["with"], took["without"]) - 1)
    beside = f"a round takes {1e3 * with_it:.4g} ms with it, {1e3 * without:.4g} ms without"
    return [
        Figure("guard", f"{federation.title}, share of a round by the clock", 100 * share, "%", by_clock),
        Figure("guard", f"{federation.title}, on top of a round without it", more, "%", beside),
    ]


def figures(names: list[str] | None = None) -> list[Figure]:
    """The federations asked for, all of them if none is."""
    return [figure for name in names or list(FEDERATIONS) for figure in compare(FEDERATIONS[name])]


if __name__ == "__main__":
    show(figures(sys.argv[1:]))
