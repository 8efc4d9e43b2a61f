"""Running an experiment from wherever it stands to its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from potluck.core.engine import Engine
from potluck.core.errors import ConfigError, RunError
from potluck.core.fit import learning_rate
from potluck.core.server import Ledger, draw_cohort, play_round
from potluck.core.types import Level, Tensors, Update
from potluck.parts.cost import LevelCost
from potluck.study.experiment import Experiment
from potluck.study.record import Progress, RunDirectory
from potluck.study.schema import Table
from potluck.study.scoring import Scored, ready_model, score_levels

Record = dict[str, Any]

PATIENCE = 3  # rounds without a single usable update before a run is stopped


class Watcher(Protocol):
    """Whoever wants to know how a run is going."""

    def begins(self, rounds: int, done: int) -> None: ...

    def client_done(self, update: Update) -> None: ...

    def round_done(self, record: Record) -> None: ...


class Nobody:
    """Watches nothing."""

    def begins(self, rounds: int, done: int) -> None:
        pass

    def client_done(self, update: Update) -> None:
        pass

    def round_done(self, record: Record) -> None:
        pass


class Rounds(Nobody):
    """Says how every evaluated round went, a line each on the error stream, where it is in nobody's way."""

    def begins(self, rounds: int, done: int) -> None:
        self.rounds = rounds

    def round_done(self, record: Record) -> None:
        scores = {name: found["accuracy"] for name, found in record["levels"].items() if found["accuracy"] is not None}
        if scores:
            shown = ", ".join(f"{name} {accuracy:.1%}" for name, accuracy in scores.items())
            print(f"round {record['round']}/{self.rounds}: {shown}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Result:
    """What came out of a run."""

    state: Tensors  # the server's
    models: Mapping[str, nn.Module]  # a plain network per level
    metrics: list[Record]  # one record per round
    costs: list[LevelCost]
    directory: Path | None = None

    @property
    def accuracy(self) -> dict[str, float]:
        """The accuracy of every level's model after the last round."""
        return {level: found["accuracy"] for level, found in self.metrics[-1]["levels"].items()}

    def export(self, level: str) -> nn.Module:
        """The model for devices of this level: a plain network in evaluation mode, yours to keep."""
        if level not in self.models:
            raise ConfigError(f"there is no model for level '{level}'; there is one for {', '.join(self.models)}")
        return self.models[level]


def execute(
    experiment: Experiment,
    engine: Engine,
    config: Table,
    directory: Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
) -> Result:
    """Run an experiment to its end; with a directory it is recorded there and can be resumed at any round."""
    if directory is None:
        return advance(experiment, engine, None, None, experiment.costs(), watcher or Nobody())
    run = RunDirectory(directory)
    with run.locked():
        costs = experiment.costs()
        progress = run.begin(config, costs, resume)
        return advance(experiment, engine, run, progress, costs, watcher or Nobody())


def advance(
    experiment: Experiment,
    engine: Engine,
    run: RunDirectory | None,
    progress: Progress | None,
    costs: list[LevelCost],
    watcher: Watcher,
) -> Result:
    """Play the rounds that are left."""
    rounds, macs = experiment.task.rounds, {cost.level: cost.macs for cost in costs}
    state = progress.state if progress else experiment.method.init(experiment.site.context(0))
    done = progress.rounds_done if progress else 0
    metrics: list[Record] = run.records() if run else []
    engine.personal = dict(progress.personal) if progress else {}
    engine.open(experiment.site)
    watcher.begins(rounds, done)
    scored: Scored | None = None
    for round in range(done, rounds):
        started = time.perf_counter()
        ctx = experiment.site.context(round)
        cohort = draw_cohort(experiment.method, experiment.fleet, experiment.cohort, macs, ctx)
        state, ledger = play_round(experiment.method, state, cohort, engine, ctx, macs, watcher.client_done)
        trained = time.perf_counter()
        due = (round + 1) % experiment.evaluate_every == 0 or round + 1 == rounds
        scored = score_levels(experiment, engine, state, round) if due else None
        record = describe(experiment, round, ledger, scored)
        record |= {
            "method": experiment.method.diagnose(state, ctx, ledger.per_level),
            "seconds": time.perf_counter() - started,
            "seconds_training": trained - started,
            "seconds_evaluation": time.perf_counter() - trained,
            "seconds_of_clients": ledger.client_seconds,
        }
        metrics.append(record)
        if run:
            run.append(record)
            run.keep(round + 1, state, engine.personal)
        watcher.round_done(record)
        require_hope(metrics)
    scored = scored or score_levels(experiment, engine, state, rounds - 1)
    if run:
        run.finish(state, scored.models, rounds)
    return Result(state, scored.models, metrics, costs, run.path if run else None)


def require_hope(metrics: Sequence[Record]) -> None:
    """Stop a run of which nothing comes any more: every update of the last rounds was refused."""
    last = metrics[-PATIENCE:]
    if len(last) == PATIENCE and all(0 < record["clients"] == record["failures"] for record in last):
        reason = last[-1]["failed"][0]["reason"]
        raise RunError(
            f"none of the updates of the last {PATIENCE} rounds can be used, since {reason}; if training diverges, "
            "lower train.lr or set train.clip (1.0 bounds the gradient's norm)"
        )


def describe(experiment: Experiment, round: int, ledger: Ledger, scored: Scored | None) -> Record:
    """A round's line in the metrics; rounds are counted from 1."""
    levels: dict[str, Record] = {}
    for level in experiment.task.levels:
        score = scored.scores.get(level.name, {}) if scored else {}
        unknown = {"accuracy": None, "loss": None}
        levels[level.name] = {**unknown, **score, "clients": ledger.per_level.get(level.name, 0)}
    return {
        "round": round + 1,
        "levels": levels,
        "clients": ledger.clients,
        "failures": len(ledger.failures),
        "failed": ledger.failures,
        "bytes_down": ledger.bytes_down,
        "bytes_up": ledger.bytes_up,
        "macs": ledger.macs,
        "calibration_bytes_down": scored.ledger.bytes_down if scored else 0,
        "calibration_bytes_up": scored.ledger.bytes_up if scored else 0,
        "learning_rate": learning_rate(experiment.task.train, round, experiment.task.rounds),
    }


def model_so_far(experiment: Experiment, engine: Engine, run: RunDirectory, level: Level) -> nn.Module:
    """The model of a level as of the last finished round of a run that is still going, or was cut short."""
    progress = run.progress()
    engine.personal = progress.personal
    engine.open(experiment.site)
    return ready_model(experiment, engine, progress.state, level, progress.rounds_done - 1, Ledger())
