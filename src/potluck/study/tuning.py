"""Choosing how each level's clients are trained: candidates are timed for a moment, the choice is written down.

Timing differs from one moment to the next, so a choice is made once: it goes into the run's config before the first
round, and whoever resumes the run, or runs that config again, gets the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from potluck.core.engine import Engine
from potluck.core.server import draw_cohort
from potluck.core.types import Job, Tensors
from potluck.core.ways.way import PLAIN
from potluck.study.experiment import Experiment

GAIN = 0.97  # of the plain way's time: what is hardly faster is not worth another rounding

Timed = dict[str, dict[str, float]]
"""Seconds of a client's training by level and way."""


def time_ways(experiment: Experiment, engine: Engine, state: Tensors, macs: Mapping[str, int]) -> Timed:
    """Try all candidates for every level, on a client of the first round where there is one."""
    updates = list(engine.map([job] for job in trials(experiment, state, macs)))
    return {
        update.client.level.name: {name: float(seconds) for name, seconds in update.payload.items()}
        for update in updates
        if not update.failure
    }


def trials(experiment: Experiment, state: Tensors, macs: Mapping[str, int]) -> Iterator[Job]:
    """A job for every level, the longest first; a large client of the first cohort lends its data."""
    ctx = experiment.site.context(0)
    cohort = draw_cohort(experiment.method, experiment.fleet, experiment.settings.fleet.cohort, macs, ctx)
    for level in sorted(experiment.admitted(), key=lambda level: -macs[level.name]):
        own = [client for client in cohort if client.level == level]
        others = [replace(client, level=level) for client in cohort]
        client = max(own or others or [experiment.fleet.client(0, level)], key=lambda client: client.size)
        yield Job(client, 0, experiment.method.distribute(state, client, ctx), "tune", experiment.recipe.run)


def fastest(timed: Timed, levels: Iterable[str]) -> dict[str, str]:
    """For every level the fastest way, the plain one where it is as good."""
    chosen = dict.fromkeys(levels, PLAIN)
    for level, seconds in timed.items():
        best = min(seconds, key=lambda name: seconds[name])
        if seconds[best] < GAIN * seconds[PLAIN]:
            chosen[level] = best
    return chosen


def told(ways: Mapping[str, str], timed: Timed) -> str:
    """The choice in a sentence, with how much faster it is than the plain way."""
    found = [
        f"{level} {way} ({timed[level][PLAIN] / timed[level][way]:.2f}x)" if way != PLAIN else f"{level} {way}"
        for level, way in ways.items()
    ]
    return f"Training steps: {', '.join(found)}"
