"""HeteroFL's masked language model for WikiText-2."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Interval
from torch import Tensor, nn

from potluck.models.attention import attend
from potluck.models.scaling import Rounding, Size, widths
from potluck.models.shapes import sequence_length

HEADS = 8
HEAD_WIDTH = 32
FEED_FORWARD = 512
LAYERS = 4


class SelfAttention(nn.Module):
    """Every token looks at every token, through four projections of their own."""

    channel_blocks: ClassVar[dict[str, tuple[int, ...]]] = {
        **{f"{projection}.weight": (HEADS, 1) for projection in ("query", "key", "value")},
        **{f"{projection}.bias": (HEADS,) for projection in ("query", "key", "value")},
        "out.weight": (1, HEADS),
    }

    def __init__(self, features: int) -> None:
        super().__init__()
        self.query = nn.Linear(features, features)
        self.key = nn.Linear(features, features)
        self.value = nn.Linear(features, features)
        self.out = nn.Linear(features, features)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(attend(self.query(x), self.key(x), self.value(x), HEADS))
        return out


class EncoderLayer(nn.Module):
    """x = norm(x + attention(x)), then x = norm(x + feed_forward(x))."""

    def __init__(self, features: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attention = SelfAttention(features)
        self.dropout1 = nn.Dropout(dropout)
        self.norm1 = nn.LayerNorm(features)
        self.linear1 = nn.Linear(features, hidden)
        self.gelu = nn.GELU()
        self.dropout2 = nn.Dropout(dropout)
        self.linear2 = nn.Linear(hidden, features)
        self.dropout3 = nn.Dropout(dropout)
        self.norm2 = nn.LayerNorm(features)
        nn.init.normal_(self.linear1.weight, std=0.02)
        nn.init.normal_(self.linear2.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.dropout1(self.attention(x)))
        fed = self.linear2(self.dropout2(self.gelu(self.linear1(x))))
        out: Tensor = self.norm2(x + self.dropout3(fed))
        return out


class MaskedLanguageModel(nn.Module):
    """Logits over the vocabulary at every position of (batch, tokens); the id after the last word is [MASK]."""

    def __init__(self, features: int, hidden: int, length: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary + 1, features)
        self.positions = nn.Embedding(length, features)
        self.norm = nn.LayerNorm(features)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(*(EncoderLayer(features, hidden, dropout) for _ in range(LAYERS)))
        self.decoder = nn.Sequential(nn.Linear(features, features), nn.GELU(), nn.LayerNorm(features))
        self.head = nn.Linear(features, vocabulary)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[-1], device=ids.device)
        x = self.dropout(self.norm(self.tokens(ids) + self.positions(places)))
        logits: Tensor = self.head(self.decoder(self.layers(x)))
        return logits


def transformer(
    width: float = 1.0,
    *,
    shape: tuple[Size, ...] = (64,),
    classes: Size = 33_279,
    dropout: Annotated[float, Interval(ge=0, le=1)] = 0.2,
    rounding: Rounding = "ceil",
) -> nn.Module:
    """Four post-norm encoder layers of 8 heads; `shape` is (longest sequence,), `classes` the vocabulary.

    Every head is narrowed alike, so that all 8 survive: ⌈32 · width⌉ features each, which at the
    paper's widths is its ⌈256 · width⌉ in all.

    >>> sum(p.numel() for p in transformer(1 / 16).parameters())
    1108479
    """
    length = sequence_length("transformer", shape)
    head, hidden = widths(width, (HEAD_WIDTH, FEED_FORWARD), rounding)
    return MaskedLanguageModel(HEADS * head, hidden, length, classes, dropout)
