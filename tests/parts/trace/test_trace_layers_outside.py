"""Pooled places, pixels read at other places, and pairs of numbers as complex ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from hand_made import Net, floats, shrunk
from torch import Tensor
from torch.nn import Conv2d, Linear


def test_pooling_over_the_features_of_places_passes_places_on() -> None:
    net = Net(lambda m, x: m.out(F.avg_pool1d(m.a(x).transpose(1, 2), 2).transpose(1, 2)), a=Linear(3, 8),
              out=Linear(8, 2))  # fmt: skip
    assert shrunk(net, floats(1, 6, 3)).cut["a.weight"] == (4, 3)


def test_pixels_read_at_places_of_a_grid_keep_their_channels() -> None:
    grid = torch.linspace(-0.5, 0.5, 18).view(1, 3, 3, 2)
    net = Net(
        lambda m, x: m.out(F.grid_sample(m.a(x), grid, align_corners=False)), a=Conv2d(1, 8, 1), out=Conv2d(8, 2, 1)
    )
    assert shrunk(net, floats(1, 1, 5, 5)).cut["a.weight"] == (4, 1, 1, 1)


def test_places_that_a_network_computes_stay() -> None:
    """A grid of two coordinates, as from the small network that a spatial transformer has."""

    def run(m: Net, x: Tensor) -> Tensor:
        grid = m.places(m.hidden(x.flatten(1))).tanh().view(-1, 3, 3, 2)
        return m.out(F.grid_sample(m.a(x), grid, align_corners=False))

    net = Net(run, a=Conv2d(1, 8, 1), hidden=Linear(25, 6), places=Linear(6, 18), out=Conv2d(8, 2, 1))
    seen = shrunk(net, floats(1, 1, 5, 5))
    assert (seen.cut["hidden.weight"], seen.cut["places.weight"]) == ((3, 25), (18, 3))
    assert seen.why("places.weight").startswith("used as an index: grid_sampler_2d")
    assert seen.cut["a.weight"] == (4, 1, 1, 1)


def test_both_numbers_of_a_complex_one_are_one_channel() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        turned = torch.view_as_complex(m.a(x).unflatten(-1, (-1, 2)).contiguous()) * 1j
        return m.out(torch.view_as_real(turned).flatten(1))

    seen = shrunk(Net(run, a=Linear(3, 8), out=Linear(8, 2)), floats(2, 3))
    assert seen.kept("a.weight") == seen.kept("out.weight", 1) == [0, 1, 2, 3]
