"""The rows of a head and of token embeddings that a client's data say something about."""

from __future__ import annotations

import torch
from torch import Tensor

from potluck.core.types import Client, Context


def label_rows(client: Client, ctx: Context) -> dict[str, Tensor]:
    """The rows a client has a say in, of the head and of token embeddings: those of the classes in its data.

    Rows beyond the classes (the mask's) are everybody's.
    """
    rows = torch.tensor(client.labels, dtype=torch.long)
    beyond = {
        name: torch.cat([rows, torch.arange(ctx.task.classes, count)]) for name, count in ctx.task.embeddings.items()
    }
    return {**dict.fromkeys(ctx.task.head, rows), **beyond}
