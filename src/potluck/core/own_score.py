"""How good a client's own model is, for methods whose models differ from client to client."""

from __future__ import annotations

import torch

from potluck.core.client import Site
from potluck.core.errors import UpdateError
from potluck.core.evaluate import as_tensors, batch_size, sums_over
from potluck.core.form import Form, Spec
from potluck.core.random import seeded
from potluck.core.types import Goal, Job, Tensors

MEASURES: dict[Goal, tuple[str, ...]] = {
    "classes": ("accuracy", "loss"),
    "next-token": ("accuracy", "loss"),
    "masked-tokens": ("accuracy", "loss", "masked_accuracy", "masked_loss", "paper_perplexity"),
}


def score_own(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """What a client's own test examples add to its level's score, with the network that it has now."""
    ctx, examples = site.context(job.round), site.holder.test(job.client.id)
    if not len(examples):
        raise UpdateError("the client holds no test examples")
    with seeded(ctx.seed, "score", job.round, job.client.id):
        net = site.placed(site.method.localize(job, ctx, personal))
        chosen = torch.arange(len(examples))
        sums = sums_over(net, examples, chosen, site.task.goal, None, batch_size(site.task))
    return as_tensors(sums), {}


def score_form(goal: Goal) -> Form:
    """What a client may answer a request to score with: a sum and a count for every measure."""
    return dict.fromkeys(MEASURES[goal], Spec(torch.Size([2]), torch.float64))
