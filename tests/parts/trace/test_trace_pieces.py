"""Pieces that code takes of channels, and pieces that it lays side by side."""

from __future__ import annotations

import torch
from hand_made import Net, floats, shrunk
from torch import Tensor
from torch.nn import Linear


def test_halves_that_are_sliced_stay_equally_long_though_one_comes_in_pieces() -> None:
    """6 and 3 + 3 channels: rounded each for themselves, half of them would be 3 and 2 + 2."""

    def run(m: Net, x: Tensor) -> Tensor:
        hidden = m.a(x)
        half = hidden.shape[1] // 2
        first, second = hidden[:, half:].chunk(2, dim=1)
        return m.whole(hidden[:, :half]) + m.first(first) + m.second(second)

    net = Net(run, a=Linear(3, 12), whole=Linear(6, 2), first=Linear(3, 2), second=Linear(3, 2))
    cut = shrunk(net, floats(1, 3)).cut
    assert cut["whole.weight"][1] == 2 * cut["first.weight"][1] == 2 * cut["second.weight"][1]
    assert cut["a.weight"] == (2 * cut["whole.weight"][1], 3)


def test_the_two_numbers_of_a_pair_go_together() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        pairs = m.a(x).unflatten(-1, (-1, 2))
        return m.one(pairs[..., 0]) + m.other(pairs[..., 1])

    seen = shrunk(Net(run, a=Linear(3, 8), one=Linear(4, 2), other=Linear(4, 2)), floats(1, 3))
    assert seen.kept("a.weight") == [0, 1, 2, 3]
    assert seen.blocks == [(4, "a.weight[0] a.bias[0] one.weight[1] other.weight[1]")]


def test_heads_of_two_layers_side_by_side_have_channels_of_one_size() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        return m.out(torch.cat([m.a(x).unflatten(-1, (2, -1)), m.b(x).unflatten(-1, (3, -1))], 1).sum(1))

    seen = shrunk(Net(run, a=Linear(3, 8), b=Linear(3, 12), out=Linear(4, 2)), floats(5, 3))
    assert seen.kept("a.weight") == [0, 1, 4, 5]
    assert seen.kept("b.weight") == [0, 1, 4, 5, 8, 9]


def test_zeros_behind_channels_are_as_many_as_a_sum_needs() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        few, many = m.few(x), m.many(x)
        zeros = few.new_zeros(len(x), many.shape[1] - few.shape[1])
        return m.out(torch.cat([few, zeros], 1) + many)

    seen = shrunk(Net(run, few=Linear(3, 4), many=Linear(3, 10), out=Linear(10, 2)), floats(2, 3))
    assert seen.kept("many.weight") == [0, 1, 4, 5, 6]
    assert seen.cut["few.weight"] == (2, 3)


def test_inputs_behind_channels_keep_what_is_added_to_them() -> None:
    net = Net(lambda m, x: m.out(torch.cat([m.a(x), x], 1) + m.b(x)), a=Linear(3, 4), b=Linear(3, 7), out=Linear(7, 2))
    seen = shrunk(net, floats(2, 3))
    assert seen.kept("b.weight") == [0, 1, 4, 5, 6]


def test_a_token_in_front_of_others_has_their_channels() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        hidden = m.a(x)
        fresh = hidden.new_zeros(len(x), 1, hidden.shape[2])
        return m.out(torch.cat([m.token.expand(len(x), -1, -1), hidden, fresh], 1))

    net = Net(run, a=Linear(3, 8), token=torch.nn.Parameter(torch.zeros(1, 1, 8)), out=Linear(8, 2))
    assert shrunk(net, floats(2, 5, 3)).blocks == [(8, "token[2] a.weight[0] a.bias[0] out.weight[1]")]
