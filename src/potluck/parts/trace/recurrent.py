"""The state of PyTorch's recurrent layers and cells: a run of one step starts from zeros and never reads it again."""

from __future__ import annotations

from torch import nn

from potluck.core.names import own_name
from potluck.parts.trace.seen import Trace


def join_states(net: nn.Module, seen: Trace) -> None:
    """What a step puts out, of every gate, is what the next step reads."""
    for name, module in net.named_modules():
        if isinstance(module, nn.RNNBase | nn.RNNCellBase):
            for own, _ in module.named_parameters(recurse=False):
                if own.startswith("weight_hh"):
                    rows, state = seen.atoms[own_name(name, own)]
                    projection = own_name(name, own.replace("weight_hh", "weight_hr"))
                    made = seen.atoms[projection][0] if projection in seen.atoms else rows
                    seen.joins.join(made.reshape(-1, len(state)), state, f"its state: '{name}'")
