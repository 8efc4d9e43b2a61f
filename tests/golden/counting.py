"""Networks without memory behind them, and numbers as papers print them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from potluck.models.catalogue import find_model, input_for


def build(name: str, width: float = 1.0, **options: object) -> nn.Module:
    """A network on the meta device: shapes and counts only, however large it is."""
    with torch.device("meta"):
        return find_model(name)(width, **options)


def example(shape: tuple[int, ...]) -> Tensor:
    """One input of this shape, also on the meta device."""
    kind = torch.long if len(shape) == 1 else torch.float32
    return torch.zeros(1, *shape, dtype=kind, device="meta")


def example_for(name: str) -> Tensor:
    """One input of the network's default shape."""
    return example(input_for(name))


def parameters(net: nn.Module) -> int:
    """How many numbers a network learns."""
    return sum(p.numel() for p in net.parameters())


def millions(value: float) -> str:
    """As FedHM prints it."""
    return f"{value / 1e6:.2f}M"
