"""A one-dimensional convolutional network for sound and time series."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class AudioNet(nn.Module):
    """Four convolutions over raw samples; time is averaged away, then two linear layers."""

    def __init__(self, n_input: int, n_channel: int, n_output: int = 12, stride: int = 4) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(n_input, n_channel, kernel_size=32, stride=stride)
        self.bn1 = nn.BatchNorm1d(n_channel)
        self.pool1 = nn.MaxPool1d(2)
        self.conv2 = nn.Conv1d(n_channel, n_channel, kernel_size=3)
        self.bn2 = nn.BatchNorm1d(n_channel)
        self.conv3 = nn.Conv1d(n_channel, 2 * n_channel, kernel_size=3)
        self.bn3 = nn.BatchNorm1d(2 * n_channel)
        self.pool3 = nn.MaxPool1d(2)
        self.conv4 = nn.Conv1d(2 * n_channel, 2 * n_channel, kernel_size=3)
        self.bn4 = nn.BatchNorm1d(2 * n_channel)
        self.fc1 = nn.Linear(2 * n_channel, n_channel)
        self.fc2 = nn.Linear(n_channel, n_output)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool1(F.relu(self.bn1(self.conv1(x))))
        x = F.relu(self.bn2(self.conv2(x)))
        x = self.pool3(F.relu(self.bn3(self.conv3(x))))
        x = F.elu(self.bn4(self.conv4(x)))
        x = F.avg_pool1d(x, x.shape[-1])
        x = x.permute(0, 2, 1).squeeze(1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=-1)


def audio_net(width: float = 1.0) -> AudioNet:
    return AudioNet(1, int(32 * width))
