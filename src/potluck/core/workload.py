"""How much a client computes for a training job, as the method's phases say."""

from __future__ import annotations

from potluck.core.method import Method
from potluck.core.random import seeded
from potluck.core.types import Context, Job


def examples_trained(method: Method, job: Job, ctx: Context) -> int:
    """How often a client trains on an example, all phases and epochs together."""
    epochs = ctx.memo.once(examples_trained, (method, job.client.level), lambda: epochs_by_source(method, job, ctx))
    return epochs["private"] * job.client.size + epochs["proxy"] * (len(ctx.task.proxy) if ctx.task.proxy else 0)


def epochs_by_source(method: Method, job: Job, ctx: Context) -> dict[str, int]:
    """How many passes clients of a level make over their own examples and over the public ones."""
    found = {"private": 0, "proxy": 0}
    with seeded(ctx.seed, "workload"):
        for phase in method.phases(job, ctx, {}):
            found[phase.source] += (phase.train or ctx.task.train).epochs
    return found
