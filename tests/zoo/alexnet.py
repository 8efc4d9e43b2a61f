"""AlexNet in small: large first kernels, local response left out, flatten, dropout before the linear layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AlexNet(nn.Module):
    """Five convolutions without any norm, three linear layers."""

    def __init__(self, channels: tuple[int, int, int, int, int], hidden: int, num_classes: int = 10) -> None:
        super().__init__()
        c1, c2, c3, c4, c5 = channels
        self.conv1 = nn.Conv2d(3, c1, kernel_size=7, stride=2, padding=3)
        self.conv2 = nn.Conv2d(c1, c2, kernel_size=5, padding=2)
        self.conv3 = nn.Conv2d(c2, c3, kernel_size=3, padding=1)
        self.conv4 = nn.Conv2d(c3, c4, kernel_size=3, padding=1)
        self.conv5 = nn.Conv2d(c4, c5, kernel_size=3, padding=1)
        self.pool = nn.MaxPool2d(kernel_size=3, stride=2)
        self.dropout = nn.Dropout(0.5)
        self.fc1 = nn.Linear(c5 * 3 * 3, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = F.relu(self.conv3(x))
        x = F.relu(self.conv4(x))
        x = self.pool(F.relu(self.conv5(x)))
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(self.dropout(x)))
        x = F.relu(self.fc2(self.dropout(x)))
        return self.fc3(x)


def alexnet(width: float = 1.0) -> AlexNet:
    """For pictures of 64 x 64."""
    c1, c2, c3, c4, c5 = (int(n * width) for n in (16, 48, 96, 64, 64))
    return AlexNet((c1, c2, c3, c4, c5), hidden=int(256 * width))
