"""A three-dimensional convolutional network for short clips."""

from __future__ import annotations

from torch import Tensor, nn


class C3D(nn.Module):
    """Space and time shrink together, then flatten and classify."""

    def __init__(self, base: int, num_classes: int = 6) -> None:
        super().__init__()
        self.layer1 = self._conv_layer(3, base)
        self.pool1 = nn.MaxPool3d((1, 2, 2))
        self.layer2 = self._conv_layer(base, 2 * base)
        self.pool2 = nn.MaxPool3d(2)
        self.layer3 = nn.Sequential(*self._conv_layer(2 * base, 4 * base), *self._conv_layer(4 * base, 4 * base))
        self.pool3 = nn.AdaptiveAvgPool3d((1, 2, 2))
        self.n_flat = 4 * base * 4
        self.fc1 = nn.Linear(self.n_flat, 8 * base)
        self.relu = nn.LeakyReLU()
        self.fc2 = nn.Linear(8 * base, num_classes)

    def _conv_layer(self, in_c: int, out_c: int) -> nn.Sequential:
        conv = nn.Conv3d(in_c, out_c, kernel_size=3, padding=1)
        return nn.Sequential(conv, nn.BatchNorm3d(out_c), nn.LeakyReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool1(self.layer1(x))
        x = self.pool2(self.layer2(x))
        x = self.pool3(self.layer3(x))
        x = x.view(-1, self.n_flat)
        return self.fc2(self.relu(self.fc1(x)))


def c3d(width: float = 1.0) -> C3D:
    return C3D(base=int(8 * width))
