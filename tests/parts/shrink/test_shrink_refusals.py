"""Networks with sizes written into their code: refused with a way out, and the ways out work."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hand_made import Net, floats, see, told_apart
from torch import Tensor, nn
from torch.nn import Conv2d, Linear
from torch.nn.attention.flex_attention import flex_attention

from potluck.core.errors import ModelError
from potluck.parts.shrink.shrinkable import Shrinkable


class LeNet(nn.Module):
    """The network of PyTorch's own tutorial for years, with its 400."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = Conv2d(3, 6, 5), Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = Linear(400, 120), Linear(120, 84), Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv1(x).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2)
        x = x.view(-1, 400)
        return self.fc3(self.fc2(self.fc1(x).relu()).relu())


PICTURE = torch.zeros(1, 3, 32, 32)


class Padded(nn.Module):
    """A shortcut that pads with as many zeros as the author had channels (ResNet's option A)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block, self.out = Conv2d(3, 8, 1), Conv2d(8, 16, 1), Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.out(self.block(x) + F.pad(x, (0, 0, 0, 0, 0, 8)))


class Inside(nn.Module):
    """The same mistake in a module that has a name."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = Padded(), Conv2d(2, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


@pytest.mark.parametrize(
    ("net", "example", "where"),
    [
        (LeNet(), PICTURE, "the network, shape '[-1, 400]' is invalid for input of size 200"),
        (Padded(), floats(1, 3, 2, 2), "the network"),
        (Inside(), floats(1, 3, 2, 2), "'body'"),
    ],
)
def test_a_size_in_the_code_is_refused_with_the_ways_out(net: nn.Module, example: Tensor, where: str) -> None:
    with pytest.raises(ModelError) as refused:
        Shrinkable(net, (example,))(0.5)
    message = str(refused.value)
    assert message.count("\n") == 0
    assert "cannot be made narrower" in message
    assert f"in {where}" in message
    assert "keep=[…]" in message
    assert "a function of the width" in message
    assert "flatten" in message


@pytest.mark.parametrize("kept", ["conv2.bias", "conv2.weight", "conv2", "fc1.weight"])
def test_lenet_with_its_last_convolution_kept(kept: str) -> None:
    net = told_apart(LeNet())
    narrow = Shrinkable(net, (PICTURE,), keep=(kept,))(0.5)
    assert narrow.conv2.out_channels == 16
    assert narrow.fc1.in_features == 400
    assert narrow(PICTURE).shape == (1, 10)
    free = {"conv2.bias": (3, 60, 42), "fc1.weight": (3, 120, 42)}
    if kept in free:
        sizes = (narrow.conv1.out_channels, narrow.fc1.out_features, narrow.fc2.out_features)
        assert sizes == free[kept]


def test_a_padded_shortcut_with_its_block_kept() -> None:
    net = told_apart(Padded())
    narrow = Shrinkable(net, (floats(1, 3, 2, 2),), keep=("stem.bias", "block.bias"))(0.5)
    assert torch.equal(narrow.block.weight, net.block.weight)


def padded(front: float) -> Net:
    """A shortcut that pads with as many zeros as are missing, some of them in front."""

    def run(m, x):
        x = m.stem(x)
        more = m.block(x)
        missing = more.shape[1] - x.shape[1]
        before = int(missing * front)
        return m.out(more + F.pad(x, (0, 0, 0, 0, before, missing - before)))

    return Net(run, stem=Conv2d(3, 8, 1), block=Conv2d(8, 16, 1), out=Conv2d(16, 2, 1))


def test_a_shortcut_padded_behind_to_the_size_at_hand_is_no_problem() -> None:
    seen = see(padded(front=0), floats(1, 3, 2, 2))
    assert seen.kept("block.weight") == [0, 1, 2, 3, 8, 9, 10, 11]  # half of the stem's, half of the others
    assert seen.changed_by_moving() < 1e-4
    assert seen.differs_from_zeroed() < 1e-5


def test_a_shortcut_padded_in_front_keeps_its_channels() -> None:
    net = Shrinkable(padded(front=0.5), (floats(1, 3, 2, 2),))
    assert net(0.5).block.weight.shape == (16, 8, 1, 1)
    assert "padded in front" in net.findings.channels.whole["stem.weight"][0]


@pytest.mark.parametrize(("name", "hint"), [("conv3", "'conv2'"), ("conv2.wieght", "'conv2.weight'")])
def test_a_name_nobody_has_gets_a_hint(name: str, hint: str) -> None:
    with pytest.raises(ModelError, match=f"did you mean {hint}") as refused:
        Shrinkable(LeNet(), (PICTURE,), keep=(name,))(0.5)
    assert f"'{name}'" in str(refused.value)


def test_a_kept_tensor_says_so_and_keeps_what_goes_with_it() -> None:
    net = nn.Sequential(Linear(3, 8), nn.ReLU(), Linear(8, 6), nn.ReLU(), Linear(6, 2))
    seen = see(net, floats(1, 3), keep=("0.bias",))
    assert seen.cut == {"2.weight": (3, 8), "2.bias": (3,), "4.weight": (2, 3)}
    assert seen.why("0.weight") == seen.why("0.bias") == seen.why("2.weight", 1) == "it is named in keep"


def test_a_kept_module_keeps_all_of_its_tensors() -> None:
    net = nn.Sequential(Linear(3, 8), nn.Sequential(Linear(8, 6), Linear(6, 4)), Linear(4, 2))
    seen = see(net, floats(1, 3), keep=("1",))
    assert seen.plan.narrowed == frozenset()
    seen = see(net, floats(1, 3), keep=("1.1",))
    assert seen.cut == {"0.weight": (4, 3), "0.bias": (4,), "1.0.weight": (6, 4)}


def test_a_network_that_does_not_run_says_why_in_its_own_words() -> None:
    with pytest.raises(Exception, match="mat1 and mat2"):
        Shrinkable(nn.Sequential(Linear(3, 8), Linear(9, 2)), (floats(1, 3),))(0.5)


def test_sizes_computed_once_at_the_start_are_found_out() -> None:
    """A python number in a closure is nobody's attribute."""
    hidden = 8

    def run(m, x):
        return m.out(m.a(x).reshape(-1, hidden))

    with pytest.raises(ModelError, match="a size may be written into its code"):
        see(Net(run, a=Linear(3, hidden), out=Linear(hidden, 2)), floats(2, 3)).shrink(0.5)


def test_a_view_that_would_silently_take_two_examples_for_one_is_refused() -> None:
    """Half the channels of two examples fit into one row of 8: no error comes from PyTorch."""

    def run(m, x):
        return m.a(x).view(-1, 8).sum(1)

    net = Net(run, a=Linear(3, 8))
    seen = see(net, floats(2, 3))
    with pytest.raises(ModelError, match="instead of"):
        seen.shrink(0.5)


def test_an_operation_that_is_given_code_is_refused_by_its_name_and_place() -> None:
    class Hidden(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = x[None, None]
            return flex_attention(x, x, x)[0, 0]

    net = nn.Sequential(nn.Linear(3, 16), Hidden(), nn.Linear(16, 2))
    with pytest.raises(ModelError, match=r"flex_attention in '1', which is given code .* function of the width"):
        _ = Shrinkable(net, (floats(5, 3),)).findings


class Rows(nn.Module):
    """A layer whose channels are viewed as two rows of four, by numbers written into its code."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.rest = nn.Linear(6, 8), nn.Linear(2, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.rest(self.rows(x).view(-1, 2, 4).sum(-1))  # type: ignore[no-any-return]


def test_a_problem_of_every_layer_of_a_list_has_a_way_out_that_names_all_of_them() -> None:
    net = nn.Sequential(nn.Linear(3, 6), nn.Sequential(Rows(), Rows()), nn.Linear(6, 2))
    keep = ("1.0.rows.bias", "1.1.rows.bias")
    with pytest.raises(ModelError, match=r"keep=\[\"1.0.rows.bias\", \"1.1.rows.bias\"\] works"):
        Shrinkable(net, (floats(1, 3),))(0.5)
    assert Shrinkable(net, (floats(1, 3),), keep=keep)(0.5)[0].weight.shape == (3, 3)


def test_the_smallest_way_out_is_named_where_a_larger_one_works_too() -> None:
    """To keep "1", in which the problem is, leaves the last hidden layer to cut; what ran before it is enough."""
    rows = Rows()
    rows.register_buffer("mask", torch.ones(()), persistent=False)  # such are in no state dict
    net = nn.Sequential(nn.Linear(3, 6), rows, nn.Linear(6, 20), nn.Linear(20, 2))
    assert Shrinkable(net, (floats(1, 3),), keep=("1",))(0.5)[2].weight.shape == (10, 6)
    with pytest.raises(ModelError, match=r"keep=\[\"1.rows.bias\"\] works"):
        Shrinkable(net, (floats(1, 3),))(0.5)
    assert Shrinkable(net, (floats(1, 3),), keep=("1.rows.bias",))(0.5)[2].weight.shape == (10, 3)
