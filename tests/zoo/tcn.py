"""A temporal convolutional network: dilated causal convolutions under weight norm, residual sums."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


class Chomp1d(nn.Module):
    """Cuts off what the padding added at the end."""

    def __init__(self, chomp_size: int) -> None:
        super().__init__()
        self.chomp_size = chomp_size

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, : -self.chomp_size].contiguous()


class TemporalBlock(nn.Module):
    """Two convolutions that see only the past."""

    def __init__(self, n_inputs: int, n_outputs: int, kernel_size: int, dilation: int, dropout: float = 0.2) -> None:
        super().__init__()
        padding = (kernel_size - 1) * dilation
        self.conv1 = weight_norm(nn.Conv1d(n_inputs, n_outputs, kernel_size, padding=padding, dilation=dilation))
        self.conv2 = weight_norm(nn.Conv1d(n_outputs, n_outputs, kernel_size, padding=padding, dilation=dilation))
        self.net = nn.Sequential(
            self.conv1,
            Chomp1d(padding),
            nn.ReLU(),
            nn.Dropout(dropout),
            self.conv2,
            Chomp1d(padding),
            nn.ReLU(),
            nn.Dropout(dropout),
        )
        self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        out = self.net(x)
        res = x if self.downsample is None else self.downsample(x)
        return self.relu(out + res)


class TCN(nn.Module):
    """The last time step is classified."""

    def __init__(self, input_size: int, num_channels: list[int], kernel_size: int, output_size: int) -> None:
        super().__init__()
        sizes = [input_size, *num_channels]
        blocks = [TemporalBlock(sizes[i], sizes[i + 1], kernel_size, 2**i) for i in range(len(num_channels))]
        self.network = nn.Sequential(*blocks)
        self.linear = nn.Linear(num_channels[-1], output_size)

    def forward(self, x: Tensor) -> Tensor:
        y = self.network(x)
        return self.linear(y[:, :, -1])


def tcn(width: float = 1.0) -> TCN:
    return TCN(6, [int(n * width) for n in (32, 32, 48)], kernel_size=3, output_size=6)
