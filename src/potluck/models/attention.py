"""Attention, the one step that all transformers here share."""

from __future__ import annotations

import torch
from torch import Tensor


def attend(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """softmax(Q Kᵀ / √d) V in every head of width d; all are (batch, tokens, heads · d)."""
    q, k, v = (split_heads(x, heads) for x in (query, key, value))
    # Written out, since PyTorch's flop counter does not see its fused attention on a CPU.
    weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
    return torch.flatten((weights @ v).transpose(1, 2), 2)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, tokens, heads · d) as (batch, heads, tokens, d)."""
    return torch.unflatten(x, -1, (heads, -1)).transpose(1, 2)
