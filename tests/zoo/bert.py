"""A BERT-like encoder: separate query, key and value; token, position and type embeddings; a pooler."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Embeddings(nn.Module):
    """The sum of three embeddings, normed."""

    def __init__(self, vocab_size: int, hidden_size: int, max_positions: int, type_vocab_size: int = 2) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, hidden_size, padding_idx=0)
        self.position_embeddings = nn.Embedding(max_positions, hidden_size)
        self.token_type_embeddings = nn.Embedding(type_vocab_size, hidden_size)
        self.layer_norm = nn.LayerNorm(hidden_size, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("position_ids", torch.arange(max_positions).expand((1, -1)))

    def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        positions = self.position_embeddings(self.position_ids[:, : input_ids.size(1)])
        total = self.word_embeddings(input_ids) + positions + self.token_type_embeddings(token_type_ids)
        return self.dropout(self.layer_norm(total))


class SelfAttention(nn.Module):
    """The sizes of the views come from attributes."""

    def __init__(self, hidden_size: int, num_attention_heads: int) -> None:
        super().__init__()
        self.num_attention_heads = num_attention_heads
        self.attention_head_size = hidden_size // num_attention_heads
        self.all_head_size = self.num_attention_heads * self.attention_head_size
        self.query = nn.Linear(hidden_size, self.all_head_size)
        self.key = nn.Linear(hidden_size, self.all_head_size)
        self.value = nn.Linear(hidden_size, self.all_head_size)
        self.dropout = nn.Dropout(0.1)

    def transpose_for_scores(self, x: Tensor) -> Tensor:
        x = x.view(*x.size()[:-1], self.num_attention_heads, self.attention_head_size)
        return x.permute(0, 2, 1, 3)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        q = self.transpose_for_scores(self.query(hidden))
        k = self.transpose_for_scores(self.key(hidden))
        v = self.transpose_for_scores(self.value(hidden))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.attention_head_size) + mask
        context = torch.matmul(self.dropout(torch.softmax(scores, dim=-1)), v)
        context = context.permute(0, 2, 1, 3).contiguous()
        return context.view(*context.size()[:-2], self.all_head_size)


class Layer(nn.Module):
    """Attention and feed-forward, each followed by sum and norm."""

    def __init__(self, hidden_size: int, num_attention_heads: int, intermediate_size: int) -> None:
        super().__init__()
        self.attention = SelfAttention(hidden_size, num_attention_heads)
        self.attention_output = nn.Linear(hidden_size, hidden_size)
        self.attention_norm = nn.LayerNorm(hidden_size, eps=1e-12)
        self.intermediate = nn.Linear(hidden_size, intermediate_size)
        self.output = nn.Linear(intermediate_size, hidden_size)
        self.output_norm = nn.LayerNorm(hidden_size, eps=1e-12)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        hidden = self.attention_norm(hidden + self.attention_output(self.attention(hidden, mask)))
        wide = nn.functional.gelu(self.intermediate(hidden))
        return self.output_norm(hidden + self.output(wide))


class BertClassifier(nn.Module):
    """Classifies by the pooled first token."""

    def __init__(self, vocab_size: int, hidden: int, layers: int, heads: int, intermediate: int, labels: int) -> None:
        super().__init__()
        self.embeddings = Embeddings(vocab_size, hidden, max_positions=32)
        self.layers = nn.ModuleList([Layer(hidden, heads, intermediate) for _ in range(layers)])
        self.pooler = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh())
        self.classifier = nn.Linear(hidden, labels)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.embeddings(input_ids, token_type_ids)
        mask = (1.0 - attention_mask[:, None, None, :].to(hidden.dtype)) * torch.finfo(hidden.dtype).min
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.classifier(self.pooler(hidden[:, 0]))


def bert(width: float = 1.0) -> BertClassifier:
    return BertClassifier(100, int(64 * width), layers=2, heads=4, intermediate=int(256 * width), labels=3)
