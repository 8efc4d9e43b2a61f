"""What a client's classes decide: the logits it learns from, and the rows of the head it contributes to."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from potluck.core.fit import cross_entropy, plain_loss
from potluck.core.logits import logits_of
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


def loss_zero(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """Cross-entropy with absent classes' logits at 0, as the authors' code has it."""
    inputs, targets = batch
    return cross_entropy(masked_logits(logits_of(net(inputs)), extra["mask"], "zero"), targets)


def loss_minus_infinity(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """Cross-entropy with absent classes at probability zero, as the paper words it."""
    inputs, targets = batch
    return cross_entropy(masked_logits(logits_of(net(inputs)), extra["mask"], "-inf"), targets)


LOSSES: dict[Masking, Loss] = {"zero": loss_zero, "-inf": loss_minus_infinity, "off": plain_loss}


def label_rows(client: Client, ctx: Context) -> dict[str, Tensor]:
    """The rows of the head and of token embeddings that a client contributes to: its classes' rows.

    Rows beyond the classes (the mask's) belong to everybody.
    """
    rows = torch.tensor(client.labels, dtype=torch.long)
    beyond = {
        name: torch.cat([rows, torch.arange(ctx.task.classes, count)]) for name, count in ctx.task.embeddings.items()
    }
    return {**dict.fromkeys(ctx.task.head(client.level), rows), **beyond}
