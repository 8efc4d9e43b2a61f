"""Static batch norm: no running statistics in training. When a model is to be used, clients measure them."""

from __future__ import annotations

from torch import nn

from potluck.core.calibration import norms
from potluck.core.names import own_name


def statistic_names(net: nn.Module) -> list[str]:
    """The names of the running statistics in the network's state."""
    found = ((name, norm, norm.state_dict()) for name, norm in norms(net).items())
    return [
        own_name(name, kind)
        for name, norm, kept in found
        for kind, _ in norm.named_buffers(recurse=False)
        if kind in kept
    ]


def forget_statistics(net: nn.Module) -> nn.Module:
    """Normalise by each batch's own statistics and store none."""
    for norm in norms(net).values():
        norm.track_running_stats = False
        norm.running_mean = norm.running_var = norm.num_batches_tracked = None
    return net
