"""Multi-layer perceptrons: plain, and with gates, residual sums and a bilinear layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MLP(nn.Module):
    """Flatten, hidden layers with batch norm, classes."""

    def __init__(self, input_size: int, hidden_sizes: list[int], num_classes: int = 10) -> None:
        super().__init__()
        self.input_size = input_size
        layers: list[nn.Module] = []
        size = input_size
        for hidden in hidden_sizes:
            layers += [nn.Linear(size, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.2)]
            size = hidden
        self.body = nn.Sequential(*layers)
        self.out = nn.Linear(size, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, self.input_size)
        return F.log_softmax(self.out(self.body(x)), dim=1)


class GatedMLP(nn.Module):
    """Gated linear units over a residual stream, joined with their start by a bilinear layer."""

    def __init__(self, features: int, hidden: int, n_layers: int, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.layers = nn.ModuleList([nn.Linear(hidden, 2 * hidden) for _ in range(n_layers)])
        self.last = nn.Bilinear(hidden, hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        start = torch.tanh(self.first(x))
        h = start
        for layer in self.layers:
            h = h + F.glu(layer(h), dim=-1)
        return self.last(h, start)


def mlp(width: float = 1.0) -> MLP:
    return MLP(28 * 28, [int(n * width) for n in (256, 128, 128)])


def gated_mlp(width: float = 1.0) -> GatedMLP:
    return GatedMLP(20, int(64 * width), n_layers=3, num_classes=5)
