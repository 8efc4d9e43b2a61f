"""Dimensions that are several parts laid end to end: gates of recurrent layers, heads of attention.

The first channels of such a dimension are the first of each part, or a narrow network would take
one gate for another. PyTorch's own layers are known here; a network of one's own says it with an
attribute `channel_blocks`, from parameter names below that module to parts per dimension.
"""

from __future__ import annotations

from torch import nn

from potluck.core.names import own_name

Blocks = dict[str, tuple[int, ...]]

GATES: dict[type[nn.RNNBase], int] = {nn.LSTM: 4, nn.GRU: 3}


def blocks_per_dimension(net: nn.Module) -> Blocks:
    """How many equal parts each dimension of the network's parameters has, where it has more than one."""
    found: Blocks = {}
    for name, module in net.named_modules():
        found |= {own_name(name, own): parts for own, parts in own_blocks(module).items()}
    return found


def own_blocks(module: nn.Module) -> Blocks:
    """The parts that one module knows of."""
    declared = getattr(module, "channel_blocks", None)
    if isinstance(declared, dict):
        return declared
    if isinstance(module, nn.MultiheadAttention):
        return attention_blocks(module.num_heads)
    if isinstance(module, nn.RNNBase):
        return recurrent_blocks(module)
    return {}


def attention_blocks(heads: int) -> Blocks:
    """Query, key and value one after the other, each in heads; the output reads the heads."""
    return {
        "in_proj_weight": (3 * heads, 1),
        "in_proj_bias": (3 * heads,),
        "q_proj_weight": (heads, 1),
        "k_proj_weight": (heads, 1),
        "v_proj_weight": (heads, 1),
        "out_proj.weight": (1, heads),
    }


def recurrent_blocks(module: nn.RNNBase) -> Blocks:
    """Rows in gates; above the first layer, columns in directions."""
    gates = next((count for kind, count in GATES.items() if isinstance(module, kind)), 1)
    directions = 2 if module.bidirectional else 1
    found: Blocks = {}
    for name, parameter in module.named_parameters(recurse=False):
        if name.startswith("weight_hr"):  # a projection of the state, which has no gates
            continue
        reads_below = name.startswith("weight_ih") and not name.startswith("weight_ih_l0")
        found[name] = (gates, directions if reads_below else 1) if parameter.dim() == 2 else (gates,)
    return found
