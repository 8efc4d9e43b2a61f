"""Weights that PyTorch's own attention asks to be square."""

from __future__ import annotations

from hand_made import Net, floats, see, shrunk
from torch import Tensor, nn
from torch.nn import Linear

from potluck.parts.trace.findings import KEPT, TIED


def test_heads_of_pytorchs_attention_stay_if_what_it_puts_out_stays() -> None:
    """It reads 8 inputs and adds to them; the layers behind it are narrowed all the same."""

    def run(m: Net, x: Tensor) -> Tensor:
        return m.out(m.hidden(x + m.attention(x, x, x)[0]))

    net = Net(run, attention=nn.MultiheadAttention(8, 2, batch_first=True), hidden=Linear(8, 6), out=Linear(6, 2))
    seen = shrunk(net, floats(1, 5, 8))
    assert seen.why("attention.out_proj.weight", 0) == "it meets what stays: add in the network"
    assert seen.why("attention.out_proj.weight", 1) == seen.why("attention.in_proj_weight") == TIED
    assert seen.cut == {"hidden.weight": (3, 8), "hidden.bias": (3,), "out.weight": (2, 3)}


def test_heads_that_are_kept_by_name_keep_that_reason() -> None:
    """Their output stays as well, which would be a reason of its own."""
    net = Net(lambda m, x: m.attention(x, x, x)[0], attention=nn.MultiheadAttention(8, 2, batch_first=True))
    seen = see(net, floats(1, 5, 8), keep=("attention.in_proj_bias",))
    assert seen.why("attention.out_proj.weight", 1) == seen.why("attention.in_proj_weight") == KEPT
