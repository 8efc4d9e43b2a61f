"""Choosing by the clock how each level's clients are trained: ways are timed for a moment, the choice is written down.

Timing differs from one moment to the next, so a choice is made once: it goes into the run's config before the first
round, and whoever resumes the run, or runs that config again, gets the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from potluck.core.clock import Clock
from potluck.core.engine import Engine
from potluck.core.guard import epochs_of
from potluck.core.store import Memory
from potluck.core.types import Client, Job, Tensors
from potluck.core.ways.trial import SHARE, Plan, try_ways
from potluck.core.ways.way import PLAIN
from potluck.parts.cost.level import LevelCost
from potluck.study.counting import first_cohort, load_of, sample_job
from potluck.study.experiment import Experiment

GAIN = 0.97  # of the counted way's time: what is hardly faster is not worth another rounding
LEAST_BATCHES = 4  # to try a way besides the plain one; a level that may not try even so many is not timed
MOST_MACS = 1 << 35  # of a batch's forward pass, which is a second or two for a core; two would take too long

Timed = dict[str, dict[str, float]]
"""Seconds of a client's training by level and way."""


def time_ways(
    experiment: Experiment,
    engine: Engine,
    state: Tensors,
    costs: Sequence[LevelCost],
    counted: Mapping[str, str],
    clock: Clock,
) -> Timed:
    """Time ways to train every level that trains long enough, beginning with the one that was counted."""
    cohort, plans, jobs = first_cohort(experiment, costs), dict[str, Plan](), list[Job]()
    for level in experiment.admitted():
        job, load = sample_job(experiment, state, level, cohort), load_of(experiment, level, costs, cohort)
        own = [client for client in cohort if client.level == level] or [job.client]
        batches = batches_of(experiment, job, own) * experiment.task.rounds / engine.places
        if SHARE * batches >= LEAST_BATCHES and load.examples * load.macs <= MOST_MACS:
            plans[level.name] = Plan(load, batches, counted[level.name])
            jobs.append(replace(job, work="tune"))
    if not jobs:
        return {}
    jobs.sort(key=lambda job: -plans[job.client.level.name].load.macs)  # the longest first
    site = replace(experiment.site, works={"tune": partial(try_ways, plans)})
    engine.open(site, experiment.desk, Memory(), clock)
    updates = list(engine.map([job] for job in jobs))
    return {
        update.client.level.name: {name: float(seconds) for name, seconds in update.payload.items()}
        for update in updates
        if not update.failure
    }


def batches_of(experiment: Experiment, job: Job, clients: Sequence[Client]) -> int:
    """How many batches these clients train on in a round."""
    epochs = epochs_of(experiment.method, job, experiment.site.context(0))
    size = experiment.task.train.batch_size * experiment.task.train.accumulate
    return sum(-(-epochs.examples(client, experiment.task) // size) for client in clients)


def fastest(timed: Timed, counted: Mapping[str, str]) -> dict[str, str]:
    """For every level the fastest way; the counted one where it is as good, or nothing else was timed."""
    chosen = dict(counted)
    for level, seconds in timed.items():
        if len(seconds) > 1:
            usual = counted[level] if counted[level] in seconds else PLAIN
            best = min(seconds, key=lambda name: seconds[name])
            chosen[level] = best if seconds[best] < GAIN * seconds[usual] else usual
    return chosen


def told(ways: Mapping[str, str], timed: Timed) -> str:
    """The choice in a sentence, with what it won over the plain way."""
    return f"Training steps: {', '.join(told_of(level, way, timed.get(level, {})) for level, way in ways.items())}"


def told_of(level: str, way: str, seconds: Mapping[str, float]) -> str:
    """The choice for a level."""
    if way not in seconds or len(seconds) == 1:
        return f"{level} {way} (counted, not timed)"
    if way == PLAIN:
        return f"{level} {way} (nothing is faster)"
    return f"{level} {way} ({seconds[PLAIN] / seconds[way]:.2f}x as fast as plain)"
