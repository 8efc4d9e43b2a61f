"""What may come back for a job: derived from the method once for each level and form of payload."""

from __future__ import annotations

from potluck.core.calibration import statistics_form
from potluck.core.form import Form, form_of
from potluck.core.method import Method
from potluck.core.own_score import score_form
from potluck.core.random import seeded
from potluck.core.types import Context, Job


def expected(method: Method, job: Job, ctx: Context) -> Form:
    """The form of an honest answer to a job."""
    sent = tuple(form_of(job.payload).items())
    return ctx.memo.once(expected, (method, job.work, job.client.level, sent), lambda: derived(method, job, ctx))


def derived(method: Method, job: Job, ctx: Context) -> Form:
    """The form of an honest answer, found by taking the client's part without training."""
    if job.work == "score":
        return score_form(ctx.task.goal)
    with seeded(ctx.seed, "form"):
        if job.work == "calibrate":
            return statistics_form(method.localize(job, ctx, {}), ctx.task.example[0])
        return method.expects(job, ctx)
