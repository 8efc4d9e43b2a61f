"""Convolutions whose window runs over channels, and what their kernels keep."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch.nn.functional as F
from hand_made import Net, Seen, floats, raw, see, shrunk
from torch import Tensor, nn
from torch.nn import Conv1d, Conv2d, Linear

Pool = Callable[[Tensor, int, int], Tensor]


def over_features(conv: Conv2d, length: int, exact: bool = True) -> Seen:
    """A convolution over five places of 8 channels, as over the words of a sentence; `length` is left of the 8."""

    def run(m: Net, x: Tensor) -> Tensor:
        return m.out(m.conv(m.a(x).unsqueeze(1)).sum((1, 2)))

    net = Net(run, a=Linear(3, 8), conv=conv, out=Linear(length, 2))
    return shrunk(net, floats(1, 5, 3)) if exact else see(net, floats(1, 5, 3))


def test_a_window_as_wide_as_the_features_is_narrowed_with_them() -> None:
    seen = over_features(Conv2d(1, 4, (3, 8)), 1)
    assert seen.cut == {
        "a.weight": (4, 3), "a.bias": (4,), "conv.weight": (2, 1, 3, 4), "conv.bias": (2,)
    }  # fmt: skip
    assert seen.why("conv.weight", 2) == "it is a kernel's own"


def test_a_window_over_places_passes_the_features_on() -> None:
    seen = over_features(Conv2d(1, 4, (3, 1)), 8)
    assert (seen.cut["a.weight"], seen.cut["out.weight"]) == ((4, 3), (2, 4))


def test_a_window_that_slides_over_features_keeps_them() -> None:
    seen = over_features(Conv2d(1, 4, (1, 3)), 6)
    assert seen.why("a.weight") == "it meets what stays: convolution in 'conv'"
    assert seen.cut == {"conv.weight": (2, 1, 1, 3), "conv.bias": (2,)}


def test_a_window_as_wide_as_the_features_that_is_padded_keeps_them() -> None:
    seen = over_features(Conv2d(1, 4, (1, 8), padding=(0, 1)), 3)
    assert seen.why("a.weight") == "it meets what stays: convolution in 'conv'"
    assert seen.cut["conv.weight"] == (2, 1, 1, 8)


def test_a_window_that_reads_only_the_first_features_keeps_them() -> None:
    """One step of a stride as long as the features: which of them are first matters."""
    seen = over_features(Conv2d(1, 4, (1, 3), stride=(1, 8)), 1)
    assert seen.why("a.weight") == "it meets what stays: convolution in 'conv'"
    assert seen.cut == {"conv.weight": (2, 1, 1, 3), "conv.bias": (2,)}


@pytest.mark.parametrize("pool", [F.avg_pool1d, F.max_pool1d])
@pytest.mark.parametrize(("window", "length"), [(3, 1), (8, 1), (2, 4)])
def test_pooling_that_reads_only_some_of_the_features_keeps_them(pool: Pool, window: int, length: int) -> None:
    """One window over all of them may be narrowed with them, if the network takes its length from the features."""

    def run(m: Net, x: Tensor) -> Tensor:
        found = m.a(x)
        size = found.shape[-1] if window == 8 else window
        return m.out(pool(found, size, 2 if length == 4 else 8).sum(1))

    seen = see(Net(run, a=Linear(3, 8), out=Linear(length, 2)), floats(1, 5, 3))
    if window == 8:
        assert seen.cut["a.weight"] == (4, 3)
    else:
        assert seen.why("a.weight").startswith("it meets what stays: ")
        assert not seen.cut


def test_the_length_of_a_kernel_is_no_third_set_of_channels() -> None:
    seen = shrunk(nn.Sequential(Conv1d(2, 8, 3), Conv1d(8, 6, 3), Conv1d(6, 4, 3)), floats(1, 2, 12))
    assert seen.cut["1.weight"] == (3, 4, 3)
    assert seen.why("1.weight", 2) == "it is a kernel's own"


def test_a_kernel_read_in_groups_keeps_how_many_each_group_reads() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        return m.one(F.conv2d(m.a(x), m.kernel, groups=m.kernel.shape[0])) + m.other(F.conv2d(m.b(x), m.kernel))

    layers = {name: Conv2d(4, 2, 1) for name in ("one", "other")}
    net = Net(run, a=Conv2d(1, 8, 1), b=Conv2d(1, 2, 1), kernel=raw(4, 2, 1, 1), **layers)
    seen = shrunk(net, floats(1, 1, 3, 3))
    assert seen.cut["kernel"] == (2, 2, 1, 1)
    assert "b.weight" not in seen.cut


def test_a_transposed_kernel_read_in_groups_keeps_how_many_each_group_gives() -> None:
    def run(m: Net, x: Tensor) -> Tensor:
        one = F.conv_transpose2d(m.a(x), m.kernel, groups=m.kernel.shape[0])
        return m.one(one) + m.other(F.conv_transpose2d(m.b(x), m.kernel))

    layers = {"a": Conv2d(1, 4, 1), "b": Conv2d(1, 4, 1), "one": Conv2d(8, 2, 1), "other": Conv2d(2, 2, 1)}
    seen = shrunk(Net(run, kernel=raw(4, 2, 1, 1), **layers), floats(1, 1, 3, 3))
    assert seen.cut["kernel"] == (2, 2, 1, 1)
    assert seen.cut["one.weight"] == (2, 4, 1, 1)
    assert "other.weight" not in seen.cut


def test_a_window_of_one_place_is_no_third_set_of_channels() -> None:
    seen = shrunk(nn.Sequential(Conv1d(2, 8, 1), Conv1d(8, 6, 1), Conv1d(6, 4, 1)), floats(1, 2, 4))
    assert seen.cut["1.weight"] == (3, 4, 1)
