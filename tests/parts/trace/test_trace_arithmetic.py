"""Which channels meet in sums, products and views."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hand_made import Net, floats, raw, see, shrunk
from torch import nn
from torch.nn import Linear

from potluck.core.errors import ModelError


def test_what_is_added_is_one_channel() -> None:
    seen = shrunk(
        Net(lambda m, x: m.out(m.a(x) + m.b(x)), a=Linear(3, 8), b=Linear(3, 8, bias=False), out=Linear(8, 2)),
        floats(1, 3),
    )
    assert seen.blocks == [(8, "a.weight[0] a.bias[0] b.weight[0] out.weight[1]")]
    assert seen.cut == {"a.weight": (4, 3), "a.bias": (4,), "b.weight": (4, 3), "out.weight": (2, 4)}


def test_a_residual_stream_is_one_block_and_its_branches_are_others() -> None:
    def run(m, x):
        x = m.stem(x)
        for up, down in ((m.up1, m.down1), (m.up2, m.down2)):
            x = x + down(up(x).relu())
        return m.out(x)

    parts = {"stem": (3, 8), "up1": (8, 6), "down1": (6, 8), "up2": (8, 4), "down2": (4, 8), "out": (8, 2)}
    seen = shrunk(Net(run, **{name: Linear(*sizes, bias=False) for name, sizes in parts.items()}), floats(1, 3))
    assert seen.blocks == [
        (8, "stem.weight[0] up1.weight[1] down1.weight[0] up2.weight[1] down2.weight[0] out.weight[1]"),
        (6, "up1.weight[0] down1.weight[1]"),
        (4, "up2.weight[0] down2.weight[1]"),
    ]


def test_a_concatenation_keeps_the_pieces_apart() -> None:
    seen = shrunk(
        Net(lambda m, x: m.out(torch.cat([m.a(x), x, m.b(x)], 1)), a=Linear(3, 6), b=Linear(3, 4), out=Linear(13, 2)),
        floats(1, 3),
    )
    assert seen.cut == {
        "a.weight": (3, 3),
        "a.bias": (3,),
        "b.weight": (2, 3),
        "b.bias": (2,),
        "out.weight": (2, 8),  # 3 of a's, the 3 inputs, 2 of b's
    }
    assert seen.kept("out.weight", 1) == [0, 1, 2, 6, 7, 8, 9, 10]


def test_dense_connections_count_each_layer_where_it_was_laid() -> None:
    def run(m, x):
        first = m.a(x)
        second = m.b(torch.cat([x, first], 1))
        return m.out(torch.cat([x, first, second], 1))

    seen = shrunk(Net(run, a=Linear(3, 4), b=Linear(7, 4), out=Linear(11, 2)), floats(1, 3))
    assert seen.kept("b.weight", 1) == [0, 1, 2, 3, 4]
    assert seen.kept("out.weight", 1) == [0, 1, 2, 3, 4, 7, 8]


def test_pieces_of_a_concatenation_that_is_taken_apart_again() -> None:
    def run(m, x):
        one, other = torch.cat([m.a(x), m.b(x)], 1).split([6, 4], dim=1)
        return m.c(one) + m.d(other)

    with pytest.raises(ModelError, match="split"):  # 6 and 4 are written into the code
        see(Net(run, a=Linear(3, 6), b=Linear(3, 4), c=Linear(6, 2), d=Linear(4, 2)), floats(1, 3)).shrink(0.5)


def test_halves_taken_apart_stay_equally_long_and_meet_in_a_product() -> None:
    def run(m, x):
        one, other = m.a(x).chunk(2, dim=1)
        return m.out(one * other.sigmoid())

    seen = shrunk(Net(run, a=Linear(3, 12), out=Linear(6, 2)), floats(1, 3))
    assert seen.blocks == [(6, "a.weight[0] a.bias[0] out.weight[1]")]
    assert seen.kept("a.weight") == [0, 1, 2, 6, 7, 8]


def test_glu_is_a_product_of_halves() -> None:
    seen = shrunk(Net(lambda m, x: m.out(F.glu(m.a(x))), a=Linear(3, 12), out=Linear(6, 2)), floats(1, 3))
    assert seen.kept("a.weight") == [0, 1, 2, 6, 7, 8]
    assert seen.cut["out.weight"] == (2, 3)


def test_glu_over_the_channels_of_pictures() -> None:
    net = Net(lambda m, x: m.out(F.glu(m.a(x), dim=1)), a=nn.Conv2d(2, 8, 1), out=nn.Conv2d(4, 2, 1))
    assert shrunk(net, floats(1, 2, 3, 3)).kept("a.weight") == [0, 1, 4, 5]


def test_quarters_of_which_not_all_meet_stay_equally_long() -> None:
    def run(m, x):
        one, two, three, four = m.a(x).chunk(4, dim=1)
        return m.out(one * two) + m.other(three) + m.third(four)

    seen = shrunk(Net(run, a=Linear(3, 16), out=Linear(4, 2), other=Linear(4, 2), third=Linear(4, 2)), floats(1, 3))
    assert [size for size, _ in seen.blocks] == [4, 4, 4]
    assert seen.kept("a.weight") == [0, 1, 4, 5, 8, 9, 12, 13]


@pytest.mark.parametrize(("view", "dim", "kept"), [((-1, 2, 4), 1, [0, 1, 4, 5]), ((-1, 4, 2), 2, [0, 1, 2, 3])])
def test_maxout_takes_the_best_of_some_pieces(view: tuple[int, ...], dim: int, kept: list[int]) -> None:
    class Maxout(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.out = Linear(3, 8), Linear(4, 2)
            self.pieces = 2

        def forward(self, x):
            x = self.a(x)
            shape = (-1, self.pieces, x.shape[1] // self.pieces) if dim == 1 else (-1, x.shape[1] // self.pieces, 2)
            return self.out(x.view(shape).max(dim).values)

    seen = shrunk(Maxout(), floats(1, 3))
    assert seen.kept("a.weight") == kept
    assert seen.cut["out.weight"] == (2, 2)


def test_flattened_channels_take_all_of_their_positions_along() -> None:
    net = Net(lambda m, x: m.out(m.a(x).flatten(1)), a=nn.Conv2d(1, 4, 1), out=Linear(16, 2))
    seen = shrunk(net, floats(1, 1, 2, 2))
    assert seen.cut == {"a.weight": (2, 1, 1, 1), "a.bias": (2,), "out.weight": (2, 8)}
    assert seen.kept("out.weight", 1) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_positions_before_channels_are_flattened_in_that_order() -> None:
    net = Net(lambda m, x: m.out(m.a(x).flatten(1)), a=Linear(3, 4), out=Linear(12, 2))
    assert shrunk(net, floats(1, 3, 3)).kept("out.weight", 1) == [0, 1, 4, 5, 8, 9]


def test_unflattened_channels_come_with_their_positions() -> None:
    net = Net(lambda m, x: m.out(m.un(m.a(x))), a=Linear(3, 16), un=nn.Unflatten(1, (-1, 2, 2)), out=nn.Conv2d(4, 2, 1))
    seen = shrunk(net, floats(1, 3))
    assert seen.kept("a.weight") == [0, 1, 2, 3, 4, 5, 6, 7]
    assert seen.cut["out.weight"] == (2, 2, 1, 1)


def test_sizes_of_a_decoder_that_unflatten_remembers() -> None:
    net = Net(lambda m, x: m.out(m.un(m.a(x))), a=Linear(3, 16), un=nn.Unflatten(1, (4, 2, 2)), out=nn.Conv2d(4, 2, 1))
    seen = shrunk(net, floats(1, 3))
    assert seen.narrow.un.unflattened_size == (2, 2, 2)


def test_transposing_moves_channels_along() -> None:
    net = Net(lambda m, x: m.out(m.mix(m.a(x).transpose(1, 2)).transpose(1, 2)), a=Linear(3, 4), mix=Linear(5, 5),
              out=Linear(4, 2))  # fmt: skip
    seen = shrunk(net, floats(1, 5, 3))
    assert seen.blocks == [(4, "a.weight[0] a.bias[0] out.weight[1]")]


def test_mixing_tokens_through_a_hidden_layer_narrows_that() -> None:
    def run(m, x):
        x = m.stem(x)
        return m.out((x + m.down(m.up(x.transpose(1, 2)).relu()).transpose(1, 2)).mean(1))

    net = Net(run, stem=Linear(3, 4), up=Linear(5, 6), down=Linear(6, 5), out=Linear(4, 2))
    seen = shrunk(net, floats(1, 5, 3))
    assert seen.blocks == [
        (4, "stem.weight[0] stem.bias[0] out.weight[1]"),
        (6, "up.weight[0] up.bias[0] down.weight[1]"),
    ]


def test_raw_parameters_in_an_einsum() -> None:
    net = Net(lambda m, x: torch.einsum("bi,ih,ho->bo", x, m.first, m.second), first=raw(3, 8), second=raw(8, 2))
    seen = shrunk(net, floats(1, 3))
    assert seen.blocks == [(8, "first[1] second[0]")]
    assert seen.cut == {"first": (3, 4), "second": (4, 2)}


def test_matrix_products_with_raw_parameters() -> None:
    net = Net(lambda m, x: (x @ m.first + m.shift).relu() @ m.second, first=raw(3, 8), shift=raw(8), second=raw(8, 2))
    assert shrunk(net, floats(1, 3)).blocks == [(8, "first[1] shift[0] second[0]")]


def test_a_scale_and_a_shift_per_channel() -> None:
    def run(m, x):
        return m.out(m.a(x) * m.scale[:, None, None] + m.shift.view(1, -1, 1, 1))

    seen = shrunk(
        Net(run, a=nn.Conv2d(1, 4, 1), scale=raw(4), shift=raw(4), out=nn.Conv2d(4, 2, 1)), floats(1, 1, 2, 2)
    )
    assert seen.blocks == [(4, "scale[0] shift[0] a.weight[0] a.bias[0] out.weight[1]")]


def test_a_bilinear_layer_reads_two_sets_of_channels() -> None:
    net = Net(
        lambda m, x: m.out(m.both(m.a(x), m.b(x))), a=Linear(3, 8), b=Linear(3, 6), both=nn.Bilinear(8, 6, 4),
        out=Linear(4, 2),
    )  # fmt: skip
    seen = shrunk(net, floats(1, 3))
    assert seen.cut["both.weight"] == (4, 4, 3)  # a stack of matrices, one per output
    assert seen.blocks == [(8, "a.weight[0] a.bias[0] both.weight[1]"), (6, "b.weight[0] b.bias[0] both.weight[2]")]
    assert (seen.narrow.both.out_features, seen.narrow.both.in1_features, seen.narrow.both.in2_features) == (4, 4, 3)


@pytest.mark.parametrize("stem", [Linear(3, 6), nn.Identity()], ids=["channels enter", "inputs enter"])
def test_a_stack_of_matrices_keeps_all_its_experts(stem: nn.Module) -> None:
    def run(m, x):
        x = m.stem(x)
        share = m.gate(x).softmax(-1)
        each = torch.einsum("beh,eho->beo", torch.einsum("bi,eih->beh", x, m.up).relu(), m.down)
        return (share.unsqueeze(-1) * each).sum(1)

    size = getattr(stem, "out_features", 3)
    seen = shrunk(Net(run, stem=stem, gate=Linear(size, 4), up=raw(4, size, 8), down=raw(4, 8, 2)), floats(1, 3))
    assert seen.cut["up"] == (4, 3, 4)
    assert seen.cut["down"] == (4, 4, 2)


def test_a_gate_per_channel_is_those_channels() -> None:
    def run(m, x):
        x = m.a(x)
        return m.out(x * m.up(m.down(x.mean((2, 3), keepdim=True)).relu()).sigmoid())

    net = Net(run, a=nn.Conv2d(1, 8, 1), down=nn.Conv2d(8, 4, 1), up=nn.Conv2d(4, 8, 1), out=nn.Conv2d(8, 2, 1))
    seen = shrunk(net, floats(1, 1, 2, 2))
    assert seen.blocks == [
        (8, "a.weight[0] a.bias[0] down.weight[1] up.weight[0] up.bias[0] out.weight[1]"),
        (4, "down.weight[0] down.bias[0] up.weight[1]"),
    ]


def test_weights_used_twice_are_cut_once() -> None:
    def run(m, x):
        x = m.stem(x)
        for _ in range(3):
            x = m.again(x).relu()
        return m.out(x)

    seen = shrunk(Net(run, stem=Linear(3, 8), again=Linear(8, 8), out=Linear(8, 2)), floats(1, 3))
    assert seen.blocks == [
        (8, "stem.weight[0] stem.bias[0] again.weight[0] again.weight[1] again.bias[0] out.weight[1]")
    ]
    assert seen.cut["again.weight"] == (4, 4)


def test_a_weight_used_forwards_and_backwards() -> None:
    net = Net(lambda m, x: F.linear(m.a(x).relu(), m.a.weight.t()), a=Linear(5, 8))
    seen = shrunk(net, floats(1, 5))
    assert seen.blocks == [(8, "a.weight[0] a.bias[0]")]


def test_a_shuffle_of_groups_is_followed_channel_by_channel() -> None:
    def run(m, x):
        x = m.a(x)
        size = x.shape[1]
        x = x.view(-1, 2, size // 2, 2, 2).transpose(1, 2).reshape(-1, size, 2, 2)
        one, other = x.chunk(2, dim=1)
        return m.out(torch.cat([m.b(one), other], 1))

    net = Net(run, a=nn.Conv2d(1, 8, 1), b=nn.Conv2d(4, 4, 1), out=nn.Conv2d(8, 2, 1))
    seen = shrunk(net, floats(1, 1, 2, 2))
    # Shuffled: 0 4 1 5 | 2 6 3 7. Two of 0-3 and two of 4-7 stay, two on either side of the bar.
    assert seen.kept("a.weight") == [0, 2, 4, 6]
    assert seen.cut["b.weight"] == (2, 2, 1, 1)


def test_a_mean_over_channels_leaves_nothing_to_couple() -> None:
    net = Net(lambda m, x: m.out(m.a(x) - m.a(x).mean(1, keepdim=True)), a=Linear(3, 8), out=Linear(8, 2))
    assert shrunk(net, floats(1, 3), exact=False).blocks == [(8, "a.weight[0] a.bias[0] out.weight[1]")]


def test_attention_over_channels_by_products_of_features() -> None:
    """The sum over channels is gone from the scores, and comes back with the values."""

    def run(m, x):
        scores = (m.q(x) @ m.k(x).transpose(1, 2)).softmax(-1)
        return m.out(scores @ m.v(x))

    net = Net(run, q=Linear(3, 6), k=Linear(3, 6), v=Linear(3, 4), out=Linear(4, 2))
    assert shrunk(net, floats(1, 5, 3)).blocks == [
        (6, "q.weight[0] q.bias[0] k.weight[0] k.bias[0]"),
        (4, "v.weight[0] v.bias[0] out.weight[1]"),
    ]
