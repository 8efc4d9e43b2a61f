"""Weights used more than once: one block applied again and again, and a decoder that is its encoder transposed."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Recurrent(nn.Module):
    """One convolution refines the features several times, with a norm of its own each time."""

    def __init__(self, channels: int, steps: int, num_classes: int = 10) -> None:
        super().__init__()
        self.steps = steps
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.shared = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in range(steps)])
        self.widen = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)
        self.fc = nn.Linear(2 * channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        for step in range(self.steps):
            x = x + F.relu(self.norms[step](self.shared(x)))
        x = F.relu(self.widen(x))
        return self.fc(x.mean(dim=(-2, -1)))


class TiedAutoencoder(nn.Module):
    """The decoder multiplies by the encoder's weights, the other way round."""

    def __init__(self, n_inputs: int, hidden: int, code: int) -> None:
        super().__init__()
        self.enc1 = nn.Linear(n_inputs, hidden)
        self.enc2 = nn.Linear(hidden, code)
        self.dec_bias2 = nn.Parameter(self.enc1.bias.detach().clone())
        self.dec_bias1 = nn.Parameter(self.enc1.weight.detach().mean(0))

    def forward(self, x: Tensor) -> Tensor:
        code = F.relu(self.enc2(F.relu(self.enc1(x))))
        h = F.relu(F.linear(code, self.enc2.weight.t(), self.dec_bias2))
        return F.linear(h, self.enc1.weight.t(), self.dec_bias1)


def recurrent_conv(width: float = 1.0) -> Recurrent:
    return Recurrent(int(32 * width), steps=4)


def tied_autoencoder(width: float = 1.0) -> TiedAutoencoder:
    return TiedAutoencoder(40, int(64 * width), int(32 * width))
