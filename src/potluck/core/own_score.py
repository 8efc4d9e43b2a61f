"""How good a client's own model is, for methods whose models differ from client to client."""

from __future__ import annotations

import torch
from torch import nn

from potluck.core.client import Site
from potluck.core.data import Arrays
from potluck.core.errors import UpdateError
from potluck.core.evaluate import tally_as_trained, tally_over
from potluck.core.form import Form, form_of
from potluck.core.random import seeded
from potluck.core.types import Job, Task, Tensors


def score_own(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """What a client's own test examples add to its level's score, with the network that it has now."""
    ctx, examples = site.context(job.round), site.holder.test(job.client.id)
    if not len(examples):
        raise UpdateError("the client holds no test examples")
    with seeded(ctx.seed, "score", job.round, job.client.id):
        net = site.placed(site.method.localize(job, ctx, personal))
        chosen = torch.arange(len(examples))
        return tally_as_trained(net, examples, chosen, site.recipe, job.client.level, ctx.memo), {}


def score_form(net: nn.Module, task: Task) -> Form:
    """What a client may answer a request to score with: sums and counts, and the states of metrics."""
    return form_of(tally_over(net, Arrays(*task.example), torch.arange(1), task, None, batch_size=1))
