"""Running an experiment from wherever it stands to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from potluck.core.clock import Clock
from potluck.core.engine import Engine
from potluck.core.errors import RunError
from potluck.core.fit import learning_rate
from potluck.core.server import Ledger, draw_cohort, play_round
from potluck.core.types import Client, Level
from potluck.core.ways.step import AUTO, Step, ways_of
from potluck.core.ways.way import Way
from potluck.parts.cost.level import LevelCost
from potluck.study.experiment import Experiment
from potluck.study.record import Progress, RunDirectory, step_of
from potluck.study.result import Profile, Result
from potluck.study.schema import Table
from potluck.study.scoring import Scored, measured, ready_model, score_levels
from potluck.study.tuning import fastest, time_ways
from potluck.study.watchers import Nobody, Record, Watcher

PATIENCE = 3  # rounds without a single usable update before a run is stopped


def execute(
    experiment: Experiment,
    engine: Engine,
    config: Table,
    directory: Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
) -> Result:
    """Run an experiment to its end; with a directory it is recorded there and can be resumed at any round."""
    watcher = watcher or Nobody()
    engine.clock = Clock()
    if step_of(config) != AUTO:
        ways_of(step_of(config), [level.name for level in experiment.task.levels])  # refused before anything is written
    if directory is None:
        costs = experiment.costs()
        return advance(
            settled(experiment, engine, step_of(config), costs, None, watcher), engine, None, None, costs, watcher
        )
    run = RunDirectory(directory)
    with run.locked():
        costs = experiment.costs()
        progress = run.begin(config, costs, resume)
        experiment = settled(experiment, engine, run.step(), costs, run, watcher)
        return advance(experiment, engine, run, progress, costs, watcher)


def settled(
    experiment: Experiment,
    engine: Engine,
    step: Step,
    costs: list[LevelCost],
    run: RunDirectory | None,
    watcher: Watcher,
) -> Experiment:
    """The experiment with a way to train for every level: the one that is asked for, or the fastest."""
    levels = [level.name for level in experiment.task.levels]
    if step != AUTO:
        return with_ways(experiment, ways_of(step, levels))
    with engine.clock.spent_in_all("tuning"):
        state = experiment.method.init(experiment.site.context(0))
        timed = time_ways(experiment, engine, state, {cost.level: cost.macs for cost in costs})
    ways = fastest(timed, levels)
    if run:
        run.settle(ways, timed)
    watcher.tuned(ways, timed)
    return with_ways(experiment, ways)


def with_ways(experiment: Experiment, ways: Mapping[str, str]) -> Experiment:
    """The experiment, its clients trained in these ways."""
    return replace(experiment, site=replace(experiment.site, ways=ways))


def advance(
    experiment: Experiment,
    engine: Engine,
    run: RunDirectory | None,
    progress: Progress | None,
    costs: list[LevelCost],
    watcher: Watcher,
) -> Result:
    """Play the rounds that are left."""
    method, rounds, macs = experiment.method, experiment.task.rounds, {cost.level: cost.macs for cost in costs}
    state = progress.state if progress else method.init(experiment.site.context(0))
    done = progress.rounds_done if progress else 0
    metrics: list[Record] = run.records() if run else []
    stacks = {level: Way.called(way).stack for level, way in experiment.site.ways.items()}
    clock, busy, began = engine.clock, 0.0, time.perf_counter()
    engine.personal = dict(progress.personal) if progress else {}
    with clock.spent("transport"):
        engine.open(experiment.site)
    watcher.begins(rounds, done)
    cohorts: dict[int, list[Client]] = {}

    def draw(round: int) -> None:
        if round < rounds and round not in cohorts:
            with clock.spent("planning"):
                ctx = experiment.site.context(round)
                cohorts[round] = draw_cohort(method, experiment.fleet, experiment.cohort, macs, ctx)

    scored: Scored | None = None
    for round in range(done, rounds):
        started, before = time.perf_counter(), dict(clock.seconds)
        ctx = experiment.site.context(round)
        draw(round)
        state, ledger = play_round(
            method,
            state,
            cohorts.pop(round),
            engine,
            ctx,
            macs,
            watcher.client_done,
            stacks,
            meanwhile=lambda following=round + 1: draw(following),  # type: ignore[misc]
        )
        busy += ledger.client_seconds
        trained = time.perf_counter()
        due = (round + 1) % experiment.evaluate_every == 0 or round + 1 == rounds
        with clock.spent_in_all("evaluation"):
            scored = score_levels(experiment, engine, state, round) if due else None
        record = describe(experiment, round, ledger, scored)
        with clock.spent("records"):
            record["method"] = method.diagnose(state, ctx, ledger.per_level)
        record |= {
            "seconds": time.perf_counter() - started,
            "seconds_training": trained - started,
            "seconds_evaluation": time.perf_counter() - trained,
            "seconds_of_clients": ledger.client_seconds,
            "seconds_by_part": {part: total - before.get(part, 0.0) for part, total in clock.seconds.items()},
        }
        metrics.append(record)
        with clock.spent("records"):
            if run:
                run.append(record)
                run.keep(round + 1, state, engine.personal)
        watcher.round_done(record)
        require_hope(metrics)
    with clock.spent_in_all("evaluation"):
        scored = scored or score_levels(experiment, engine, state, rounds - 1)
        models = {
            level.name: ready_model(experiment.site, state, level, rounds - 1, scored.statistics[level.name])
            for level in experiment.admitted()
        }
    with clock.spent("records"):
        if run:
            run.finish(state, models, rounds)
    profile = Profile(dict(clock.seconds), time.perf_counter() - began, busy, engine.places)
    return Result(state, models, metrics, costs, profile, run.path if run else None)


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
    round = progress.rounds_done - 1
    statistics = measured(experiment, engine, progress.state, level, round, Ledger())
    return ready_model(experiment.site, progress.state, level, round, statistics)
