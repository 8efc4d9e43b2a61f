"""What a narrow copy has from the network it was made of: everything but the sizes."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hand_made import Net, floats, raw, see, shrunk, told_apart
from torch import Tensor, nn
from torch.nn import Linear

from potluck.parts.shrink.shrinkable import Shrinkable


def three_layers() -> nn.Sequential:
    return nn.Sequential(Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(), Linear(8, 2))


def test_the_original_is_left_alone() -> None:
    net = told_apart(three_layers())
    net.train()
    before = copy.deepcopy(net.state_dict())
    Shrinkable(net, (floats(2, 3),))(0.5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert [module.training for module in net] == [True] * 4
    assert (net[0].out_features, net[1].num_features, net[3].in_features) == (8, 8, 8)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_width_one_is_a_copy() -> None:
    net = told_apart(three_layers())
    twin = Shrinkable(net, (floats(2, 3),))(1.0)
    assert twin is not net
    assert all(torch.equal(a, b) and a is not b for a, b in zip(twin.parameters(), net.parameters(), strict=True))


def test_modes_are_kept_module_by_module() -> None:
    net = three_layers().train()
    net[1].eval()
    narrow = Shrinkable(net, (floats(2, 3),))(0.5)
    assert [module.training for module in narrow] == [True, False, True, True]
    assert narrow.training
    assert not Shrinkable(net.eval(), (floats(2, 3),))(0.5).training


def test_what_is_not_trained_stays_untrained() -> None:
    net = three_layers()
    net[0].weight.requires_grad_(False)
    net[3].bias.requires_grad_(False)
    narrow = Shrinkable(net, (floats(2, 3),))(0.5)
    assert [parameter.requires_grad for parameter in narrow.parameters()] == [False, True, True, True, True, False]
    assert all(isinstance(parameter, nn.Parameter) and parameter.is_leaf for parameter in narrow.parameters())


def test_types_are_kept() -> None:
    net = told_apart(nn.Sequential(Linear(3, 8), nn.BatchNorm1d(8), Linear(8, 2))).double()
    narrow = Shrinkable(net, (floats(2, 3).double(),))(0.5)
    assert {tensor.dtype for name, tensor in narrow.state_dict().items() if "tracked" not in name} == {torch.float64}
    assert narrow[1].num_batches_tracked.dtype == torch.int64


def test_a_narrow_copy_trains_by_itself() -> None:
    net = told_apart(three_layers())
    narrow = Shrinkable(net, (floats(2, 3),))(0.5)
    narrow(floats(4, 3)).sum().backward()
    assert all(parameter.grad is not None for parameter in narrow.parameters())
    assert all(parameter.grad is None for parameter in net.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in narrow.modules())


def test_tied_parameters_stay_tied_and_untied_ones_stay_apart() -> None:
    net = Net(lambda m, x: m.out(m.b(m.a(x).relu()).relu()), a=Linear(8, 8), b=Linear(8, 8), out=Linear(8, 2))
    net.b.weight = net.a.weight
    seen = see(Net(lambda m, x: m.net(m.stem(x)), stem=Linear(3, 8), net=net), floats(1, 3))
    assert seen.narrow.net.a.weight is seen.narrow.net.b.weight
    assert seen.narrow.net.a.bias is not seen.narrow.net.b.bias
    assert seen.narrow.net.a.weight.shape == (4, 4)


def test_a_module_under_two_names_stays_one() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.first, self.out = Linear(3, 8), Linear(8, 8), Linear(8, 2)
            self.again = self.first

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.again(self.first(self.stem(x)).relu()).relu())

    seen = shrunk(Twice(), floats(1, 3))
    assert seen.narrow.again is seen.narrow.first
    assert seen.narrow.first.in_features == 4


def test_a_network_can_go_to_another_process() -> None:
    shrink = Shrinkable(told_apart(three_layers()), (floats(2, 3),))
    first = shrink(0.5)
    there = pickle.loads(pickle.dumps(shrink))
    assert "findings" not in vars(there)
    assert all(torch.equal(a, b) for a, b in zip(there(0.5).parameters(), first.parameters(), strict=True))


def test_buffers_that_are_not_saved_are_cut_as_well() -> None:
    net = Net(lambda m, x: m.out(m.a(x) * m.scale), a=Linear(3, 8), out=Linear(8, 2))
    net.register_buffer("scale", torch.arange(8.0), persistent=False)
    seen = see(net, floats(1, 3))
    assert seen.narrow.scale.tolist() == [0, 1, 2, 3]
    assert "scale" not in seen.narrow.state_dict()


class Remembers(nn.Module):
    """Sizes in a number, a tuple and a list; and numbers that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.out = Linear(3, 16), Linear(16, 2)
        self.hidden = 16
        self.grid = (4, 4)
        self.sizes = [3, 16, 2]
        self.steps = 7
        self.training_flag = True

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x).view(-1, *self.grid)
        for _ in range(self.steps):
            x = x.relu()
        return self.out(x.reshape(-1, self.hidden))


def test_sizes_in_attributes_of_every_kind() -> None:
    seen = see(Remembers(), floats(1, 3))
    narrow = seen.narrow
    assert narrow.hidden == 8
    assert narrow.grid in ((4, 2), (2, 4))
    assert narrow.steps == 7
    assert narrow.training_flag is True
    assert isinstance(narrow.grid, tuple)
    assert isinstance(narrow.sizes, list)
    assert narrow(floats(5, 3)).shape == (5, 2)
    assert seen.differs_from_zeroed() < 1e-5


class Scaled(nn.Linear):
    """A layer of the user's that is a Linear with more to remember."""

    def __init__(self, entering: int, leaving: int) -> None:
        super().__init__(entering, leaving)
        self.size = leaving
        self.gain = raw(leaving)

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[-1] == self.in_features
        return (super().forward(x) * self.gain).view(-1, self.size)


def test_a_subclass_of_linear_with_more_to_remember() -> None:
    seen = shrunk(nn.Sequential(Scaled(3, 8), nn.ReLU(), Linear(8, 2)), floats(1, 3))
    first = seen.narrow[0]
    assert type(first) is Scaled
    assert (first.in_features, first.out_features, first.size) == (3, 4, 4)
    assert first.gain.shape == (4,)


def test_numbers_that_happen_to_be_as_large_as_a_layer_are_read_by_what_works() -> None:
    """8 turns, 8 channels: only one of them is the layer's."""

    class Turns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.out = Linear(3, 8), Linear(8, 8), Linear(8, 2)
            self.turns, self.hidden = 8, 8

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            for _ in range(self.turns):
                x = self.b(x).tanh().view(-1, self.hidden)
            return self.out(x)

    seen = see(Turns(), floats(1, 3))
    assert seen.narrow.hidden == 4
    assert seen.narrow.turns == 8
    assert seen.differs_from_zeroed() < 1e-5


def test_a_number_of_steps_that_happens_to_be_as_large_as_a_layer() -> None:
    """No tensor has another shape after fewer steps, but the network is another one."""

    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.out = Linear(3, 8), Linear(8, 2)
            self.steps = 8

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            for _ in range(self.steps):
                x = x + 0.1 * x.tanh()
            return self.out(x)

    seen = see(Steps(), floats(1, 3))
    assert seen.narrow.steps == 8
    assert seen.differs_from_zeroed() < 1e-5


@pytest.mark.parametrize("width", [0.5, 0.25, 0.1, 0.9, 0.01])
def test_any_width(width: float) -> None:
    seen = see(three_layers(), floats(2, 3), width=width)
    kept = {0.5: 4, 0.25: 2, 0.1: 1, 0.9: 8, 0.01: 1}[width]  # ⌈8 · width⌉, never below 1
    assert seen.narrow[0].out_features == kept


def test_rounding_to_the_nearest() -> None:
    net = nn.Sequential(Linear(3, 10), Linear(10, 2))
    sizes = {rule: Shrinkable(net, (floats(1, 3),), rounding=rule)(0.62)[0].out_features for rule in ("ceil", "round")}
    assert sizes == {"ceil": 7, "round": 6}


def test_weights_that_hooks_compute_can_be_copied_before_the_first_run_without_gradients() -> None:
    with pytest.warns(FutureWarning):
        net = nn.Sequential(Linear(3, 8), nn.utils.weight_norm(Linear(8, 6)), Linear(6, 2))
    narrow = Shrinkable(net, (floats(1, 3),))(0.5)
    assert narrow[1].weight_v.shape == (3, 4)
    loss = narrow(floats(1, 3)).sum()
    loss.backward()
    assert narrow[1].weight_g.grad is not None
