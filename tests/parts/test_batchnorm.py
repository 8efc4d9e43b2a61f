"""Batch norm that stores no running statistics."""

from __future__ import annotations

import torch
from torch import nn

from potluck.parts.batchnorm import forget_statistics, statistic_names


def test_forgetting_leaves_weights_and_normalises_by_the_batch() -> None:
    net = nn.Sequential(nn.BatchNorm1d(1))
    net[0].running_mean.fill_(100)
    assert statistic_names(net) == ["0.running_mean", "0.running_var", "0.num_batches_tracked"]
    assert set(forget_statistics(net).state_dict()) == {"0.weight", "0.bias"}
    assert statistic_names(net) == []
    torch.testing.assert_close(
        net.eval()(torch.tensor([[1.0], [3.0]])), torch.tensor([[-1.0], [1.0]]), rtol=1e-4, atol=1e-4
    )


def test_what_a_state_does_not_have_is_no_statistic() -> None:
    net = nn.Sequential(nn.BatchNorm1d(1))
    net[0].register_buffer("scratch", torch.zeros(1), persistent=False)
    assert statistic_names(net) == ["0.running_mean", "0.running_var", "0.num_batches_tracked"]
