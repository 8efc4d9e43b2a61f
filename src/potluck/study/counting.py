"""Choosing by counting how each level's clients are trained: the same config gives the same choice on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from potluck.core.client import HOST
from potluck.core.data import is_even
from potluck.core.server import draw_cohort
from potluck.core.types import Client, Job, Level, Tensors
from potluck.core.ways.agree import agrees
from potluck.core.ways.counted import Load, ways_for
from potluck.core.ways.way import PLAIN, Way
from potluck.parts.cost.level import LevelCost
from potluck.study.experiment import Experiment


def count_ways(experiment: Experiment, state: Tensors, costs: Sequence[LevelCost]) -> dict[str, str]:
    """For every level the way that should be the fastest, of those that compute what the plain way does.

    What was counted is for processors; on another device all levels are trained plainly.
    """
    ways = dict.fromkeys((level.name for level in experiment.task.levels), PLAIN)
    if experiment.site.device != HOST:
        return ways
    site, ctx, cohort = experiment.site, experiment.site.context(0), first_cohort(experiment, costs)
    for level in experiment.admitted():
        job = sample_job(experiment, state, level, cohort)
        net = experiment.method.localize(job, ctx, {})
        suited = ways_for(net, ctx.task.example[0], load_of(experiment, level, costs, cohort))
        ways[level.name] = next(name for name in suited if name == PLAIN or agrees(Way.called(name), site, job, {}))
    return ways


def first_cohort(experiment: Experiment, costs: Sequence[LevelCost]) -> list[Client]:
    """The clients of the first round."""
    macs, wanted = {cost.level: cost.macs for cost in costs}, experiment.settings.fleet.cohort
    return draw_cohort(experiment.method, experiment.fleet, wanted, macs, experiment.site.context(0))


def sample_job(experiment: Experiment, state: Tensors, level: Level, cohort: Sequence[Client]) -> Job:
    """A job of a level in the first round; the largest client that is at hand lends its data."""
    own = [client for client in cohort if client.level == level]
    others = [replace(client, level=level) for client in cohort]
    client = max(own or others or [experiment.fleet.client(0, level)], key=lambda client: client.size)
    payload = experiment.method.distribute(state, client, experiment.site.context(0))
    return Job(client, 0, payload, run=experiment.recipe.run)


def load_of(experiment: Experiment, level: Level, costs: Sequence[LevelCost], cohort: Sequence[Client]) -> Load:
    """What a training step of a level is.

    Clients are trained at once if a round has at least two of a level and size, as far as sizes and levels tell, and
    their batches are of one shape. No stack is more than half a cohort, so that there is work for two.
    """
    (macs,) = (cost.macs for cost in costs if cost.level == level.name)
    kinds = len(experiment.admitted()) * len({client.size for client in cohort})
    alike = is_even(experiment.data) and len(cohort) >= 2 * max(1, kinds)
    together = (len(cohort) + 1) // 2 if alike else 1
    return Load(experiment.task.train.batch_size, macs, together)
