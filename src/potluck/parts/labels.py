"""What a client's classes decide: the logits it learns from, and the rows of the head it contributes to.

Only a goal that chooses one of several classes has these. With others nothing is masked, and all rows are everybody's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from potluck.core.goals.goal import Goal
from potluck.core.goals.own import Own
from potluck.core.inputs import call
from potluck.core.types import Batch, Client, Context, Loss, Tensors

Fill = Literal["zero", "-inf"]
Masking = Literal["zero", "-inf", "off"]
"""What happens to the logits of classes that a client lacks."""

_VALUE = {"zero": 0.0, "-inf": -torch.inf}


def label_mask(client: Client, classes: int) -> Tensor:
    """True for every class that occurs in the client's training data."""
    mask = torch.zeros(classes, dtype=torch.bool)
    mask[list(client.labels)] = True
    return mask


def masked_logits(logits: Tensor, mask: Tensor, fill: Fill) -> Tensor:
    """z_c for the classes a client has, 0 (or -inf) for those it lacks (HeteroFL, sec. 2.3)."""
    return logits.masked_fill(~mask, _VALUE[fill])


@dataclass(frozen=True)
class MaskedLoss:
    """The loss with absent classes' logits at 0, as the authors' code has it, or at -inf, as the paper words it."""

    goal: Goal
    fill: Fill

    def __call__(self, net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
        inputs, targets = batch
        logits = self.goal.outputs(call(net, inputs))
        return self.goal.loss(masked_logits(logits, extra["mask"], self.fill), targets)


def masked(masking: Masking, client: Client, ctx: Context) -> tuple[Loss, Tensors]:
    """A client's loss, and the mask that it needs: plain where nothing is masked."""
    fill, goal = fill_of(masking, ctx.task.goal), ctx.task.goal
    return (goal, {}) if fill is None else (MaskedLoss(goal, fill), {"mask": label_mask(client, ctx.task.classes)})


def fill_of(masking: Masking, goal: Goal) -> Fill | None:
    """What absent classes' logits become, if anything."""
    return masking if goal.softmax and masking != "off" else None


def classes_left_out(masking: Masking, goal: Goal, by_row: bool) -> list[str]:
    """A sentence if a method masks logits, but there are no classes; also that it averages a head's rows by label.

    Whoever turns masking off knows that there are none.
    """
    if goal.softmax or masking == "off":
        return []
    averages = " and rows of the head are averaged by label" if by_row else ""
    instead = " and all rows are everybody's" if by_row else ""
    way_out = "; if it does, let the task be 'classes'" if isinstance(goal, Own) else ""
    return [
        f"masking is '{masking}'{averages}, but the task '{goal.name}' does not choose among classes: nothing is masked"
        f"{instead}{way_out}"
    ]


def label_rows(client: Client, ctx: Context) -> dict[str, Tensor]:
    """The rows of the head and of token embeddings that a client contributes to: its classes' rows.

    Rows beyond the classes (the mask's) belong to everybody.
    """
    if not ctx.task.goal.softmax:
        return {}
    rows = torch.tensor(client.labels, dtype=torch.long)
    beyond = {
        name: torch.cat([rows, torch.arange(ctx.task.classes, count)]) for name, count in ctx.task.embeddings.items()
    }
    return {**dict.fromkeys(ctx.task.head(client.level), rows), **beyond}
