"""Channels in views of the same memory, in tensors that are written in parts, and in padding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hand_made import Net, floats, see, shrunk
from torch import Tensor
from torch.nn import Linear


def test_a_tensor_turned_by_its_strides_is_turned() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        hidden = m.a(x)
        return m.out(hidden.as_strided(hidden.shape[::-1], (1, hidden.shape[1])).t())

    seen = shrunk(Net(run, a=Linear(3, 8), out=Linear(8, 2)), floats(2, 3))
    assert seen.cut == {"a.weight": (4, 3), "a.bias": (4,), "out.weight": (2, 4)}


def test_a_tensor_that_is_given_other_strides_in_place_keeps_its_channels() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        hidden = m.a(x).clone()
        hidden.as_strided_(hidden.shape[::-1], (1, hidden.shape[1]))
        return m.out(hidden.t())

    seen = see(Net(run, a=Linear(3, 8), out=Linear(8, 2)), floats(2, 3))
    assert seen.why("a.weight") == "nothing is known about as_strided_ in the network"
    assert not seen.plan.narrowed


def test_a_view_of_memory_that_is_repeated_without_being_there_twice() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        hidden = m.a(x).unsqueeze(1).expand(-1, 4, -1)
        return m.out(hidden.as_strided((len(x), hidden.shape[2]), (hidden.shape[2], 1)))

    seen = shrunk(Net(run, a=Linear(3, 8), out=Linear(8, 2)), floats(2, 3))
    assert seen.cut == {"a.weight": (4, 3), "a.bias": (4,), "out.weight": (2, 4)}


def test_channels_written_as_numbers_of_another_size_stay() -> None:
    """16 numbers of two bytes are 8 of four: none of these is one channel."""

    def run(m: Net, x: Tensor) -> Tensor:
        hidden = m.a(x)
        buffer = hidden.new_zeros(len(x), hidden.shape[1] // 2)
        buffer.view(torch.int16).copy_(hidden.short())
        return m.out(buffer.nan_to_num())

    seen = see(Net(run, a=Linear(3, 16), out=Linear(8, 2)), floats(2, 3))
    assert seen.why("a.weight") == "nothing is known about copy_ in the network"
    assert not seen.plan.narrowed


@pytest.mark.parametrize("front", [1, 2])
def test_channels_with_padding_in_front_stay(front: int) -> None:
    net = Net(lambda m, x: m.out(F.pad(m.a(x), (front, 0))), a=Linear(3, 6), out=Linear(6 + front, 2))
    seen = see(net, floats(2, 3))
    assert not seen.plan.narrowed
    assert seen.why("a.weight") == "padded in front: constant_pad_nd in the network"


def test_positions_with_padding_in_front_leave_channels_free() -> None:
    net = Net(lambda m, x: m.out(F.pad(m.a(x), (0, 0, 1, 0))), a=Linear(3, 6), out=Linear(6, 2))
    assert shrunk(net, floats(2, 4, 3)).cut == {"a.weight": (3, 3), "a.bias": (3,), "out.weight": (2, 3)}
