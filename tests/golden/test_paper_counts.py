"""The two counting conventions on networks small enough to count by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from potluck.core.errors import ModelError
from potluck.models.rnn import rnn
from potluck.parts.cost.paper_counts import fedhm_macs, heterofl_flops

IMAGE = torch.zeros(1, 2, 4, 4)


@pytest.mark.parametrize(
    ("layer", "flops"),
    [
        (nn.Conv2d(2, 3, 3, padding=1, bias=False), 9 * 2 * 3 * 16),
        (nn.Conv2d(2, 3, 3, padding=1), 2 * (9 * 2 * 3 * 16 + 3 * 16)),
        (nn.Conv2d(2, 4, 3, padding=1, stride=2, groups=2, bias=False), 9 * 1 * 4 * 4),
        (nn.BatchNorm2d(2), 4 * 32),
        (nn.BatchNorm2d(2, affine=False), 0),
        (nn.LayerNorm(4), 4 * 32),
        (nn.Linear(4, 5), 2 * 8 * 4 * 5),
        (nn.Linear(4, 5, bias=False), 8 * 4 * 5),
        (nn.ReLU(), 0),
        (nn.AdaptiveAvgPool2d(1), 0),
    ],
)
def test_heterofl_counts_a_module_once_per_parameter_tensor(layer: nn.Module, flops: int) -> None:
    assert heterofl_flops(nn.Sequential(layer), IMAGE) == flops


@pytest.mark.parametrize(
    ("layer", "macs"),
    [
        (nn.Conv2d(2, 3, 3, padding=1), 9 * 2 * 3 * 16),
        (nn.Conv2d(2, 3, (1, 3), padding=(0, 1), stride=(1, 2)), 3 * 2 * 3 * 8),
        (nn.BatchNorm2d(2), 2 * 32),
        (nn.Linear(4, 5), 8 * 4 * 5),
        (nn.ReLU(), 32),
        (nn.ReLU(inplace=True), 32),
        (nn.AdaptiveAvgPool2d(1), 32),
        (nn.AvgPool2d(2), 32),
        (nn.MaxPool2d(2), 0),
    ],
)
def test_fedhm_counts_norms_relus_and_average_pooling(layer: nn.Module, macs: int) -> None:
    assert fedhm_macs(nn.Sequential(layer), IMAGE.clone()) == macs


class Reuses(nn.Module):
    """One ReLU module called twice, and one ReLU as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 1, bias=False)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(self.conv(F.relu(self.conv(self.relu(x)))))
        return out


def test_every_call_counts() -> None:
    assert heterofl_flops(Reuses(), IMAGE) == 2 * (2 * 2 * 16)
    assert fedhm_macs(Reuses(), IMAGE) == 2 * (2 * 2 * 16) + 3 * 32


def test_counting_leaves_the_network_as_it_was() -> None:
    net = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.Dropout()).train()
    net[2].eval()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    counts = {heterofl_flops(net, IMAGE + 1) for _ in range(2)} | {heterofl_flops(net.eval(), IMAGE)}
    net.train()
    net[2].eval()
    fedhm_macs(net, IMAGE + 1)
    assert len(counts) == 1
    assert [module.training for module in net] == [True, True, False]
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert not any(module._forward_hooks for module in net.modules())


def test_hooks_go_even_when_the_network_fails() -> None:
    net = nn.Sequential(nn.Linear(3, 1)).train()
    with pytest.raises(RuntimeError):
        heterofl_flops(net, torch.zeros(1, 4))
    assert not any(module._forward_hooks for module in net.modules())
    assert net.training


@pytest.mark.parametrize("count", [heterofl_flops, fedhm_macs])
def test_recurrent_layers_are_refused_rather_than_left_out(count) -> None:
    with pytest.raises(ModelError, match="no rule for recurrent layers"):
        count(rnn(0.1), torch.zeros(1, 3, dtype=torch.long))


def test_weights_that_are_computed_have_no_rule() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 5))
    for counter in (heterofl_flops, fedhm_macs):
        with pytest.raises(ModelError, match="computed"):
            counter(nn.Sequential(layer), IMAGE)
