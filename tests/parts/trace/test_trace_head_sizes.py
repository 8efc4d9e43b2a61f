"""Heads and what is as long as they are, since a module has one size for both."""

from __future__ import annotations

import pytest
import torch
from hand_made import Net, floats, see, shrunk
from torch import Tensor, nn
from torch.nn import Linear

from potluck.parts.cut.balance import Row
from potluck.parts.cut.channels import STAYS, Channels, rounded
from potluck.parts.cut.choice import Block
from potluck.parts.trace.findings import TIED
from potluck.parts.trace.lines import parts_of


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


def attention(m: Net, x: Tensor, heads: int) -> Tensor:
    """All heads side by side, from a layer each for queries, keys and values."""
    q, k, v = (layer(x).unflatten(-1, (heads, -1)).transpose(0, 1) for layer in (m.q, m.k, m.v))
    return ((q @ k.mT).softmax(-1) @ v).transpose(0, 1).flatten(1)


def test_a_layer_that_has_nothing_to_do_with_heads_of_its_size_is_rounded_by_itself() -> None:
    """4 heads of 23 keep 4·6 = 24 at a quarter; the layer after them keeps ⌈92/4⌉ = 23."""

    def run(m: Net, x: Tensor) -> Tensor:
        x = m.one(x)
        return m.head(m.down(m.up(x + m.proj(attention(m, x, 4))).relu()))

    layers = {name: Linear(16, 92) for name in ("q", "k", "v", "up")}
    net = Net(run, one=Linear(3, 16), proj=Linear(92, 16), down=Linear(92, 16), head=Linear(16, 2), **layers)
    cut = shrunk(net, floats(5, 3), width=0.25, exact=False).cut
    assert (cut["q.weight"], cut["proj.weight"]) == ((24, 4), (4, 24))
    assert (cut["up.weight"], cut["down.weight"]) == ((23, 4), (4, 23))


def test_groups_of_a_convolution_leave_the_layer_behind_them_alone() -> None:
    """4 groups of 23 channels keep 24 at a quarter; a layer that reads them, of the same size, keeps 23."""
    grouped = nn.Conv2d(92, 92, 3, groups=4, padding=1)
    net = nn.Sequential(nn.Conv2d(3, 92, 1), grouped, nn.Conv2d(92, 92, 1), nn.Conv2d(92, 2, 1))
    cut = shrunk(net, floats(1, 3, 4, 4), width=0.25).cut
    assert (cut["1.weight"], cut["2.weight"]) == ((24, 6, 3, 3), (23, 24, 1, 1))


def test_a_layer_behind_attention_of_pytorchs_own_is_rounded_by_itself() -> None:
    """What one example puts out looks like one head of 92; its readers are no heads."""

    def run(m: Net, x: Tensor) -> Tensor:
        x = m.one(x)
        return m.head(m.down(m.up(m.attention(x, x, x)[0]).relu()))

    attention = nn.MultiheadAttention(92, 4, batch_first=True)
    layers = {"one": Linear(3, 92), "up": Linear(92, 92), "down": Linear(92, 8), "head": Linear(8, 2)}
    cut = shrunk(Net(run, attention=attention, **layers), floats(1, 5, 3), width=0.25, exact=False).cut
    assert (cut["attention.out_proj.weight"], cut["up.weight"]) == ((24, 24), (23, 24))


def test_a_layer_beside_heads_is_as_wide_as_they_are_since_code_views_one_as_the_other() -> None:
    """No weight is square here: what is read keeps 2·2 of 10 channels, not 3, because the heads in one layer do."""

    def run(m: Net, x: Tensor) -> Tensor:
        x = m.one(x)
        length, size = x.shape
        q, k, v = m.qkv(x).view(length, 3, 2, size // 2).permute(1, 2, 0, 3).unbind()
        return m.head(((q @ k.mT).softmax(-1) @ v).transpose(0, 1).reshape(length, size))

    net = Net(run, one=Linear(3, 10), qkv=Linear(10, 30), head=Linear(10, 2))
    assert shrunk(net, floats(5, 3), width=0.25, exact=False).cut["qkv.weight"] == (12, 4)


@pytest.mark.parametrize(("wide", "narrow", "heads"), [(10, 3, 1), (44, 16, 2)])
def test_a_head_without_pairs_is_as_long_as_heads_of_pairs_of_its_module(wide: int, narrow: int, heads: int) -> None:
    """Queries and keys of 22 keep 2·⌈0.3·11⌉ = 8 as pairs; heads of values, of the same size, do too.

    A layer around them as wide as two heads of 22 is as wide as two of 8.
    """

    def run(m: Net, x: Tensor) -> Tensor:
        x = m.one(x)
        q, k, v = (layer(x).view(len(x), -1, m.size).transpose(0, 1) for layer in (m.q, m.k, m.v))
        q, k = (torch.cat([a + b, a - b], dim=-1) for a, b in (each.chunk(2, dim=-1) for each in (q, k)))
        return m.head(m.proj(((q @ k.mT).softmax(-1) @ v).transpose(0, 1).flatten(1)))

    layers = {"q": Linear(wide, 44), "proj": Linear(44, wide), **{name: Linear(wide, 22 * heads) for name in "kv"}}
    net = Net(run, one=Linear(3, wide), head=Linear(wide, 2), size=22, **layers)
    cut = shrunk(net, floats(5, 3), width=0.3, exact=False).cut
    assert (cut["q.weight"], cut["v.weight"], cut["proj.weight"]) == ((16, narrow), (8 * heads, narrow), (narrow, 16))


def test_of_heads_that_are_together_equally_wide_the_smallest_are_what_the_size_is_made_of() -> None:
    heads = [torch.arange(6).view(2, 3), torch.arange(6, 12).view(3, 2)]
    blocks = [Block(tuple(row)) for rows in heads for row in rows.tolist()] + [Block(tuple(range(12, 18)))]
    ids = {"weight": (torch.arange(6), torch.arange(12, 18))}
    for order in (heads, heads[::-1]):
        assert parts_of(order, blocks, ids) == {5: ((3, 2),)}


def test_a_head_of_which_a_part_stays_says_nothing_of_layers_of_its_size() -> None:
    head, layer = torch.tensor([[0, 1, 0, 1, STAYS]]), torch.arange(2, 7)
    blocks = [Block((0, 1)), Block(tuple(layer.tolist()))]
    assert parts_of([head], blocks, {"weight": (head[0], layer)}) == {}
    assert parts_of([head[:, :4]], blocks, {"weight": (head[0], layer)}) == {}


def turned(x: Tensor, share: int) -> Tensor:
    """The first channels of every head as pairs that are turned by an angle per place; the rest as it is."""
    angles = torch.arange(x.shape[1], dtype=torch.float)[:, None]
    one, other, rest = x.split([share // 2, share // 2, x.shape[-1] - share], dim=-1)
    pair = torch.cat([one, other], -1) * angles.cos() + torch.cat([-other, one], -1) * angles.sin()
    return torch.cat([pair, rest], -1)


def with_rotary_share(share: int) -> Net:
    """4 heads of 8; that many channels of each are rotary, a number that the code has."""

    def run(m: Net, x: Tensor) -> Tensor:
        x = m.stem(x)
        q, k, v = m.qkv(x).unflatten(-1, (4, -1)).transpose(0, 1).chunk(3, -1)
        mixed = (turned(q, share) @ turned(k, share).mT).softmax(-1) @ v
        return m.head(x + m.proj(mixed.transpose(0, 1).flatten(1)))

    return Net(run, stem=Linear(3, 32), qkv=Linear(32, 96), proj=Linear(32, 32), head=Linear(32, 2))


def test_heads_of_which_a_share_stays_are_cut_with_what_is_made_of_them() -> None:
    """2 of 8 stay, so queries of ⌈0.25·6⌉ beside them would be longer than values of ⌈0.25·8⌉: 3 of each fit.

    Each alone can neither grow nor shrink; everything would stay whole at a quarter, but not at half the width.
    """
    seen = see(with_rotary_share(2), floats(5, 3), width=0.25)
    assert seen.cut["qkv.weight"] == (36, 12)
    assert seen.cut["proj.weight"] == (12, 12)
    told = seen.channels.unusual(0.25, "ceil")
    assert set(told.values()) == {
        f"{sizes}: heads, groups or pieces beside it have to stay equally long"
        for sizes in ("12 of 32 instead of 8", "1 of 6 instead of 2", "3 of 8 instead of 2")
    }


def test_every_block_that_is_not_as_the_width_alone_says_has_a_remark() -> None:
    for share, width in ((2, 0.3), (4, 0.25), (4, 0.3), (2, 0.9)):
        channels = see(with_rotary_share(share), floats(5, 3), width=width).channels
        sizes = [block.size for block in channels.blocks]
        wanted = [rounded(width * size, "ceil") for size in sizes]
        counts = channels.counts(width)
        odd = {number for number, (count, plain) in enumerate(zip(counts, wanted, strict=True)) if count != plain}
        told = channels.unusual(width, "ceil")
        assert odd == set(told)
        for number in odd:
            assert told[number].startswith(f"{counts[number]} of {sizes[number]} instead of {wanted[number]}: ")


def test_a_block_for_which_nothing_less_is_found_says_so() -> None:
    """A row of one place cannot be shared by 3 channels."""
    stuck = Channels({}, (Block((0,)), Block((1, 2, 3))), ((Row(((0, 1),)), Row(((1, 1),))),), {}, {})
    assert stuck.unusual(0.5, "ceil") == {
        1: "3 of 3 instead of 2: nothing less was found with which heads, groups or pieces beside it stay equally long"
    }
