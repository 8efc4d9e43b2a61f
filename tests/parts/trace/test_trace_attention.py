"""Heads, and queries, keys and values in every layout."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hand_made import Net, floats, see, shrunk
from torch import Tensor, nn
from torch.nn import Linear

FIRST_OF_EACH_HEAD = [0, 1, 4, 5]  # 2 heads of 4, half of each


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(batch, heads, tokens, size), joined to (batch, tokens, heads · size)."""
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def matmul_attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(v.shape[0], v.shape[2], -1)


class Attention(nn.Module):
    """2 heads of 4 of 8 features, with sizes remembered as people do."""

    def __init__(self, heads: int = 2, bias: bool = True, attend=matmul_attend) -> None:
        super().__init__()
        self.stem, self.proj, self.head = Linear(3, 8), Linear(8, 8), Linear(8, 2)
        self.num_heads, self.head_dim = heads, 8 // heads
        self.attend = attend
        self.make(bias)

    def make(self, bias: bool) -> None:
        self.qkv = Linear(8, 24, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(x + self.proj(self.attend(*self.split(x))))


class ThreeHeadsSize(Attention):
    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        batch, tokens, _ = x.shape
        return self.qkv(x).reshape(batch, tokens, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)


class HeadsThreeSize(Attention):
    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        batch, tokens, _ = x.shape
        return self.qkv(x).view(batch, tokens, self.num_heads, 3 * self.head_dim).transpose(1, 2).chunk(3, dim=-1)


class Chunked(Attention):
    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))


class Apart(Attention):
    def make(self, bias: bool) -> None:
        self.q, self.k, self.v = (Linear(8, 8, bias=bias) for _ in range(3))

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        batch, tokens, _ = x.shape
        return tuple(
            layer(x).view(batch, tokens, self.num_heads, self.head_dim).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )


# q, k and v of two heads of four, laid end to end in 24 rows; the first two of every four are kept either way.
EVERY_FOUR = [row for start in range(0, 24, 4) for row in (start, start + 1)]


@pytest.mark.parametrize("how", [attend, matmul_attend])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [ThreeHeadsSize, HeadsThreeSize, Chunked])
def test_fused_queries_keys_and_values(kind, bias: bool, how) -> None:
    seen = shrunk(kind(bias=bias, attend=how), floats(1, 5, 3), exact=False)
    assert seen.kept("qkv.weight") == EVERY_FOUR
    assert seen.kept("proj.weight", 1) == FIRST_OF_EACH_HEAD
    assert seen.kept("stem.weight") == [0, 1, 2, 3]
    assert seen.cut["qkv.weight"] == (12, 4)
    assert (seen.narrow.num_heads, seen.narrow.head_dim) == (2, 2)


@pytest.mark.parametrize("kind", [ThreeHeadsSize, HeadsThreeSize, Chunked])
def test_every_head_chooses_its_queries_and_its_values_for_itself(kind) -> None:
    seen = shrunk(kind(), floats(1, 5, 3), exact=False)
    assert seen.blocks == [
        (4, "proj.weight[1] qkv.weight[0] qkv.bias[0]"),  # a head's values
        (4, "proj.weight[1] qkv.weight[0] qkv.bias[0]"),
        (4, "qkv.weight[0] qkv.bias[0]"),  # a head's queries with its keys
        (4, "qkv.weight[0] qkv.bias[0]"),
        (8, "stem.weight[0] stem.bias[0] proj.weight[0] proj.bias[0] head.weight[1] qkv.weight[1]"),
    ]


@pytest.mark.parametrize("bias", [True, False])
def test_projections_of_their_own(bias: bool) -> None:
    seen = shrunk(Apart(bias=bias), floats(1, 5, 3), exact=False)
    for name in ("q", "k", "v"):
        assert seen.kept(f"{name}.weight") == FIRST_OF_EACH_HEAD
    assert seen.kept("proj.weight", 1) == FIRST_OF_EACH_HEAD


def test_one_head_is_a_plain_layer() -> None:
    seen = shrunk(Apart(heads=1), floats(1, 5, 3), exact=False)
    assert seen.kept("q.weight") == [0, 1, 2, 3]


def test_as_many_heads_as_each_has_channels() -> None:
    """4 and 4: which of them shrinks is read off what happens, not off the numbers."""

    class Square(Apart):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.proj, self.head = Linear(3, 16), Linear(16, 16), Linear(16, 2)
            self.q, self.k, self.v = (Linear(16, 16) for _ in range(3))
            self.num_heads = self.head_dim = 4

    seen = shrunk(Square(), floats(1, 5, 3), exact=False)
    assert (seen.narrow.num_heads, seen.narrow.head_dim) == (4, 2)
    assert seen.kept("q.weight") == [0, 1, 4, 5, 8, 9, 12, 13]


def test_heads_whose_number_is_their_size_in_a_fused_layout() -> None:
    class Square(ThreeHeadsSize):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.proj, self.head, self.qkv = Linear(3, 16), Linear(16, 16), Linear(16, 2), Linear(16, 48)
            self.head_dim = self.num_heads = 4

    seen = shrunk(Square(), floats(1, 5, 3), exact=False)
    assert (seen.narrow.num_heads, seen.narrow.head_dim) == (4, 2)
    assert seen.cut["qkv.weight"] == (24, 8)


@pytest.mark.parametrize("bias", [True, False])
def test_pytorchs_attention(bias: bool) -> None:
    net = Net(
        lambda m, x: m.head(m.attention(m.stem(x), m.stem(x), m.stem(x), need_weights=False)[0]),
        stem=Linear(3, 8), attention=nn.MultiheadAttention(8, 2, bias=bias, batch_first=True), head=Linear(8, 2),
    )  # fmt: skip
    seen = shrunk(net, floats(1, 5, 3), exact=False)
    assert seen.kept("attention.in_proj_weight") == EVERY_FOUR
    assert seen.kept("attention.out_proj.weight", 1) == FIRST_OF_EACH_HEAD
    attention = seen.narrow.attention
    assert (attention.embed_dim, attention.num_heads, attention.head_dim) == (4, 2, 2)


def test_pytorchs_attention_to_something_else() -> None:
    net = Net(
        lambda m, x, y: m.head(m.attention(m.stem(x), m.keys(y), m.values(y))[0]),
        stem=Linear(3, 8), keys=Linear(5, 6), values=Linear(5, 4),
        attention=nn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True), head=Linear(8, 2),
    )  # fmt: skip
    seen = shrunk(net, floats(1, 5, 3), floats(1, 7, 5), exact=False)
    attention = seen.narrow.attention
    assert attention.k_proj_weight.shape == (4, 3)
    assert attention.v_proj_weight.shape == (4, 2)
    assert (attention.kdim, attention.vdim) == (3, 2)


def test_pytorchs_encoder_layer() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    net = nn.Sequential(Linear(3, 8), layer, Linear(8, 2)).eval()
    seen = shrunk(net, floats(1, 5, 3), exact=False)
    assert seen.cut["1.linear1.weight"] == (6, 4)
    assert seen.cut["1.linear2.weight"] == (4, 6)


class GroupedQueries(Apart):
    """4 heads of 4 for queries, 2 for keys and values."""

    def make(self, bias: bool) -> None:
        self.stem, self.proj = Linear(3, 8), Linear(16, 8)
        self.q, self.k, self.v = Linear(8, 16), Linear(8, 8), Linear(8, 8)
        self.num_heads, self.num_key_heads, self.head_dim = 4, 2, 4

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        batch, tokens, _ = x.shape
        q = self.q(x).view(batch, tokens, self.num_heads, self.head_dim).transpose(1, 2)
        k, v = (
            layer(x).view(batch, tokens, self.num_key_heads, self.head_dim).transpose(1, 2)
            for layer in (self.k, self.v)
        )
        times = self.num_heads // self.num_key_heads
        return q, k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)


def test_heads_that_share_keys_and_values() -> None:
    seen = shrunk(GroupedQueries(), floats(1, 5, 3), exact=False)
    assert seen.kept("q.weight") == [0, 1, 4, 5, 8, 9, 12, 13]
    assert seen.kept("k.weight") == seen.kept("v.weight") == FIRST_OF_EACH_HEAD
    assert seen.cut["proj.weight"] == (4, 8)
    # Queries of both heads that share a key are the key's channels; so are outputs of both and the value's.
    ids = {name: seen.channels.ids[f"{name}.weight"][0].tolist() for name in ("q", "k", "v")}
    assert ids["q"] == ids["k"][:4] * 2 + ids["k"][4:] * 2
    assert seen.channels.ids["proj.weight"][1].tolist() == ids["v"][:4] * 2 + ids["v"][4:] * 2


def turned_halves(x: Tensor, angles: Tensor) -> Tensor:
    one, other = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat([-other, one], -1) * angles.sin()


def turned_pairs(x: Tensor, angles: Tensor) -> Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()], -1)
    return turned.flatten(-2)


def turned_complex(x: Tensor, angles: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


class Rotary(Apart):
    """One head pair of 8: positions turn pairs of channels by angles made from the size at hand."""

    def __init__(self, turn, doubled: bool) -> None:
        super().__init__()
        self.turn, self.doubled = turn, doubled
        self.stem, self.proj, self.head = Linear(3, 8), Linear(16, 8), Linear(8, 2)
        self.q, self.k, self.v = (Linear(8, 16) for _ in range(3))
        self.num_heads, self.head_dim = 2, 8

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = super().split(x)
        half = q.shape[-1] // 2
        angles = torch.arange(q.shape[-2])[:, None] / 10 ** (torch.arange(half) / half)
        angles = torch.cat([angles, angles], -1) if self.doubled else angles
        return self.turn(q, angles), self.turn(k, angles), v


class RotaryBuffer(Rotary):
    """The same with frequencies in a buffer."""

    def __init__(self, turn, doubled: bool) -> None:
        super().__init__(turn, doubled)
        self.register_buffer("frequencies", 10 ** (-torch.arange(4) / 4), persistent=False)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = Apart.split(self, x)
        angles = torch.outer(torch.arange(x.shape[1]).float(), self.frequencies)
        angles = torch.cat([angles, angles], -1) if self.doubled else angles
        return self.turn(q, angles), self.turn(k, angles), v


@pytest.mark.parametrize("kind", [Rotary, RotaryBuffer])
@pytest.mark.parametrize(
    ("turn", "doubled", "head"),
    [(turned_halves, True, [0, 1, 4, 5]), (turned_pairs, False, [0, 1, 2, 3]), (turned_complex, False, [0, 1, 2, 3])],
)
def test_pairs_that_positions_turn_stay_pairs(kind, turn, doubled: bool, head: list[int]) -> None:
    net = kind(turn, doubled)
    seen = see(net, floats(1, 5, 3))
    both = [*head, *(8 + channel for channel in head)]
    assert seen.kept("q.weight") == seen.kept("k.weight") == both
    assert seen.kept("v.weight") == [0, 1, 2, 3, 8, 9, 10, 11]
    assert seen.narrow(floats(1, 5, 3)).shape == (1, 5, 2)
    partner = 4 if turn is turned_halves else 1
    ids = seen.channels.ids["q.weight"][0]
    assert ids[0] == ids[partner] == seen.channels.ids["k.weight"][0][0]
    assert ids[0] != ids[2]


def test_frequencies_in_a_buffer_go_with_their_pairs() -> None:
    seen = see(RotaryBuffer(turned_halves, True), floats(1, 5, 3))
    assert seen.changed_by_moving() < 1e-4
    assert seen.narrow.frequencies.shape == (2,)


def test_a_class_token_and_learned_places() -> None:
    def run(m, x):
        x = m.stem(x)
        x = torch.cat([m.cls.expand(x.shape[0], -1, -1), x], 1) + m.places
        return m.out(x[:, 0])

    net = Net(run, stem=Linear(3, 8), out=Linear(8, 2), cls=nn.Parameter(torch.zeros(1, 1, 8)),
              places=nn.Parameter(torch.zeros(1, 6, 8)))  # fmt: skip
    seen = shrunk(net, floats(1, 5, 3))
    assert seen.cut["cls"] == (1, 1, 4)
    assert seen.cut["places"] == (1, 6, 4)
    assert seen.blocks == [(8, "cls[2] places[2] stem.weight[0] stem.bias[0] out.weight[1]")]


def test_an_unshared_bias_of_positions_per_head_stays() -> None:
    class Biased(Apart):
        def make(self, bias: bool) -> None:
            super().make(bias)
            self.table = nn.Parameter(torch.zeros(2, 5, 5))
            self.attend = self.biased

        def biased(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attend(q, k, v)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            q, k, v = self.split(x)
            scores = (q @ k.transpose(-2, -1) + self.table).softmax(-1)
            return self.head(x + self.proj((scores @ v).transpose(1, 2).flatten(2)))

    seen = shrunk(Biased(), floats(1, 5, 3), exact=False)
    assert "table" not in seen.cut
    assert seen.kept("q.weight") == FIRST_OF_EACH_HEAD


def test_heads_laid_behind_other_heads() -> None:
    """Four heads of 4 from two layers, each read for itself: half of every head stays."""

    def run(m, x):
        heads = torch.cat([m.a(x).unflatten(-1, (2, -1)), m.b(x).unflatten(-1, (2, -1))], 1)
        return m.out(heads.flatten(1))

    seen = shrunk(Net(run, a=Linear(3, 8), b=Linear(3, 8), out=Linear(16, 2)), floats(1, 3))
    assert seen.kept("a.weight") == seen.kept("b.weight") == FIRST_OF_EACH_HEAD
    assert seen.kept("out.weight", 1) == [0, 1, 4, 5, 8, 9, 12, 13]
