"""Heads and what is as long as they are, since a module has one size for both."""

from __future__ import annotations

import pytest
import torch
from hand_made import Net, floats, see, shrunk
from torch import Tensor, nn
from torch.nn import Linear

from potluck.parts.trace.findings import TIED


class Attention(nn.Module):
    """Heads of 4, without a layer that joins them."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, 4
        self.q, self.k, self.v = (Linear(8, 4 * heads) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).view(-1, self.heads, self.size).transpose(0, 1) for layer in (self.q, self.k, self.v))
        return ((q @ k.mT).softmax(-1) @ v).transpose(0, 1).flatten(1)


@pytest.mark.parametrize("heads", [1, 2])
def test_queries_are_as_long_as_values_that_are_the_networks_output(heads: int) -> None:
    seen = shrunk(nn.Sequential(Linear(3, 8), Attention(heads)), floats(5, 3))
    assert seen.why("1.v.weight") == "it is the network's output"
    assert seen.why("1.q.weight") == TIED
    assert seen.cut == {
        "0.weight": (4, 3), "0.bias": (4,), **{f"1.{name}.weight": (4 * heads, 4) for name in "qkv"}
    }  # fmt: skip


def test_heads_of_one_module_leave_those_of_another_alone() -> None:
    seen = see(nn.Sequential(Linear(3, 8), Attention(2), Attention(2)), floats(5, 3))
    assert seen.cut["1.q.weight"] == (4, 4)
    assert seen.cut["2.q.weight"] == (8, 4)


@pytest.mark.parametrize(("width", "size"), [(0.25, 8), (0.5, 12), (0.75, 16)])
def test_heads_are_together_as_wide_as_a_layer_that_comes_in_pieces(width: float, size: int) -> None:
    """4 heads of 5, pieces of 10: rounded each for themselves, they would be 4·3 and 2·5 at half the width."""

    def run(m: Net, x: Tensor) -> Tensor:
        x = torch.cat([m.one(x), m.other(x)], dim=-1)
        q, k, v = (layer(x).unflatten(-1, (4, -1)).transpose(0, 1) for layer in (m.q, m.k, m.v))
        return m.head(x + m.proj(((q @ k.mT).softmax(-1) @ v).transpose(0, 1).reshape(x.shape)))

    layers = {name: Linear(20, 20) for name in ("q", "k", "v", "proj")}
    net = Net(run, one=Linear(3, 10), other=Linear(3, 10), head=Linear(20, 2), **layers)
    cut = shrunk(net, floats(5, 3), width=width, exact=False).cut
    assert cut["proj.weight"] == (size, size)
