"""What a job can ask of a client, by name, and how it is done: timed, and with a reason where it cannot be."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from potluck.core.blame import reason_of
from potluck.core.calibration import calibrate
from potluck.core.client import Site, Work, train
from potluck.core.errors import UpdateError
from potluck.core.guard import obstacle
from potluck.core.own_score import score_own
from potluck.core.types import Job, Tensors, Update
from potluck.core.ways.together import train_stacked

WORKS: dict[str, Work] = {"train": train, "calibrate": calibrate, "score": score_own}


def perform(site: Site, jobs: Sequence[Job], personal: Sequence[Tensors]) -> Iterator[tuple[Update, Tensors]]:
    """Answer jobs that came together; of clients trained at once, each took its share of the time."""
    if len(jobs) == 1 or any(job.work != "train" or job.run != site.recipe.run for job in jobs):
        yield from (perform_one(site, job, own) for job, own in zip(jobs, personal, strict=True))
        return
    waiting, seconds, started = list(jobs), 0.0, time.perf_counter()
    try:
        for result in train_stacked(site, jobs, personal):
            seconds = seconds or (time.perf_counter() - started) / len(jobs)
            yield answer(waiting.pop(0), result, seconds)
    except Exception as error:
        failure, seconds = reason_of(error, waiting[0]), seconds or (time.perf_counter() - started) / len(jobs)
        yield from (answer(job, failure, seconds) for job in waiting)


def perform_one(site: Site, job: Job, personal: Tensors) -> tuple[Update, Tensors]:
    """Answer one job; a client that cannot do it says why instead of ending the run."""
    started = time.perf_counter()
    result: tuple[Tensors, Tensors] | UpdateError
    try:
        if job.run != site.recipe.run:
            raise UpdateError(
                f"the job is of run {job.run[:12]}, but this machine is set up for {site.recipe.run[:12]}"
            )
        result = (site.works.get(job.work) or WORKS[job.work])(site, job, personal)
    except Exception as error:
        result = reason_of(error, job)
    return answer(job, result, time.perf_counter() - started)


def answer(job: Job, result: tuple[Tensors, Tensors] | UpdateError, seconds: float) -> tuple[Update, Tensors]:
    """A client's update and what stays on it; a failure if it has nothing that can be sent."""
    try:
        if isinstance(result, UpdateError):
            raise result
        if not isinstance(result, tuple) or len(result) != 2:
            raise UpdateError(f"it answers with a {type(result).__name__}, but it should be (what is sent, what stays)")
        sent, kept = result
        if unsendable := obstacle(sent) or obstacle(kept):
            raise UpdateError(unsendable)
    except UpdateError as error:
        return Update(job.client, {}, seconds, str(error), job.round, job.run), {}
    return Update(job.client, sent, seconds, "", job.round, job.run), kept
