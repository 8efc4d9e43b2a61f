"""TextCNN: kernels of several lengths over embedded words, the strongest response of each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TextCNN(nn.Module):
    """Sentences as pictures of one channel, kernels as wide as the embedding."""

    def __init__(self, vocab_size: int, embed_dim: int, n_filters: int, sizes: list[int], n_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.convs = nn.ModuleList([nn.Conv2d(1, n_filters, (size, embed_dim)) for size in sizes])
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(len(sizes) * n_filters, n_classes)

    def forward(self, text: Tensor) -> Tensor:
        embedded = self.embedding(text).unsqueeze(1)
        conved = [F.relu(conv(embedded)).squeeze(3) for conv in self.convs]
        pooled = [F.max_pool1d(conv, conv.shape[2]).squeeze(2) for conv in conved]
        return self.fc(self.dropout(torch.cat(pooled, dim=1)))


class TextCNN1d(nn.Module):
    """The embedding's dimensions are the channels of one-dimensional convolutions, two deep."""

    def __init__(self, vocab_size: int, embed_dim: int, n_filters: int, sizes: list[int], n_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.branches = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Conv1d(embed_dim, n_filters, size, padding=size // 2),
                    nn.ReLU(),
                    nn.Conv1d(n_filters, n_filters, size, padding=size // 2),
                    nn.ReLU(),
                    nn.AdaptiveMaxPool1d(1),
                )
                for size in sizes
            ]
        )
        self.fc = nn.Linear(len(sizes) * n_filters, n_classes)

    def forward(self, text: Tensor) -> Tensor:
        embedded = self.embedding(text).permute(0, 2, 1)
        pooled = [branch(embedded).flatten(1) for branch in self.branches]
        return self.fc(torch.cat(pooled, dim=-1))


def text_cnn(width: float = 1.0) -> TextCNN:
    return TextCNN(60, int(64 * width), int(32 * width), [3, 4, 5], n_classes=4)


def text_cnn_1d(width: float = 1.0) -> TextCNN1d:
    return TextCNN1d(60, int(64 * width), int(32 * width), [3, 5, 7], n_classes=4)
