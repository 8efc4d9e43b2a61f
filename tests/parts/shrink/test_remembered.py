"""What modules remember outside their parameters: settings, plain tensors, the state that a run left."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hand_made import Net, floats, raw, see, shrunk, told_apart
from torch import Tensor, nn
from torch.nn import Linear

from potluck.core.errors import ModelError
from potluck.parts.shrink import check, settle
from potluck.parts.shrink.shrinkable import Shrinkable


@dataclass(frozen=True)
class Config:
    hidden: int = 16
    heads: int = 4
    inside: dict[str, Any] = field(default_factory=lambda: {"sizes": [16, 4]})


SETTINGS = {
    "object": lambda: SimpleNamespace(hidden=16, heads=4),
    "frozen": Config,
    "dictionary": lambda: {"hidden": 16, "heads": 4},
    "pairs": lambda: (("hidden", 16), ("heads", 4)),
    "nested": lambda: SimpleNamespace(text=SimpleNamespace(hidden=16, heads=4)),
    "list": lambda: [[16], [4]],
}
READ = {
    "object": lambda s: (s.hidden, s.heads),
    "frozen": lambda s: (s.inside["sizes"][0], s.heads),
    "dictionary": lambda s: (s["hidden"], s["heads"]),
    "pairs": lambda s: tuple(dict(s).values()),
    "nested": lambda s: (s.text.hidden, s.text.heads),
    "list": lambda s: (s[0][0], s[1][0]),
}


class Attention(nn.Module):
    """Queries, keys and values by sizes from settings alone."""

    def __init__(self, settings: Any, read: Any) -> None:
        super().__init__()
        self.settings, self.read = settings, read
        self.qkv, self.o = Linear(16, 48), Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        hidden, heads = self.read(self.settings)
        batch, length, _ = x.shape
        q, k, v = (
            each.view(batch, length, heads, hidden // heads).transpose(1, 2)
            for each in self.qkv(x).view(batch, length, 3 * hidden).split(hidden, dim=-1)
        )
        return self.o(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(batch, length, hidden))


class Model(nn.Module):
    """Blocks that share one object with settings."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.settings = SETTINGS[kind]()
        self.stem, self.out = Linear(3, 16), Linear(16, 2)
        self.blocks = nn.ModuleList(Attention(self.settings, READ[kind]) for _ in range(2))
        self.read = READ[kind]

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.out(x.view(-1, self.read(self.settings)[0]))


@pytest.mark.parametrize("kind", SETTINGS)
def test_sizes_in_settings_of_every_kind(kind: str) -> None:
    net = Model(kind)
    seen = shrunk(net, floats(2, 5, 3))
    assert seen.cut["blocks.0.qkv.weight"] == (24, 8)
    assert READ[kind](seen.narrow.settings) == (8, 4)
    assert READ[kind](net.settings) == (16, 4)
    if kind not in ("list", "dictionary", "pairs"):
        assert seen.narrow.blocks[1].settings is seen.narrow.settings


class Twice(nn.Module):
    """Remembers a size twice, and a copy reads one from the other."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.sizes = {"size": size}
        self.__setstate__(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._sizes = tuple(self.sizes.items())

    def forward(self, x: Tensor) -> Tensor:
        return x.view(-1, dict(self._sizes)["size"])


def test_a_size_that_copies_read_from_elsewhere() -> None:
    narrow = shrunk(nn.Sequential(Linear(3, 8), Twice(8), Linear(8, 2)), floats(2, 3)).narrow
    assert copy.deepcopy(narrow)(floats(2, 3)).shape == (2, 2)


def test_a_plain_tensor_as_long_as_the_channels_goes_with_them() -> None:
    net = Net(lambda m, x: m.out(m.a(x) * m.scale + m.more["shift"]), a=Linear(3, 8), out=Linear(8, 2))
    net.scale, net.more = torch.arange(1.0, 9.0), {"shift": torch.arange(8.0), "name": "shift"}
    seen = see(net, floats(2, 3))
    assert seen.narrow.scale.tolist() == [1, 2, 3, 4]
    assert seen.narrow.more["shift"].tolist() == [0, 1, 2, 3]
    assert net.scale.shape == net.more["shift"].shape == (8,)


class Caches(nn.Module):
    """Keeps what it computed in its first run for the next."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.out = Linear(3, 8), Linear(8, 2)
        self.waves: Tensor | None = None
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        if self.waves is None or self.waves.shape[0] < x.shape[1]:
            places, sizes = torch.arange(x.shape[1]), torch.arange(1, x.shape[2] + 1)
            self.waves = (places[:, None] / sizes).cos()
        self.seen.append(x.mean())
        return self.out(x + self.waves[: x.shape[1]])


@pytest.mark.parametrize("length", [None, 5, 3, 9])
def test_what_an_earlier_run_left_does_not_matter(length: int | None) -> None:
    net = told_apart(Caches())
    if length is not None:
        net(floats(2, length, 3))
    narrow = Shrinkable(net, (floats(2, 5, 3),))(0.5)
    assert narrow.a.weight.shape == (4, 3)
    assert narrow(floats(2, 5, 3)).shape == (2, 5, 2)
    narrow(floats(2, 12, 3)).sum().backward()
    assert (net.waves is None) == (length is None)
    assert len(net.seen) == (length is not None)


class Masked(nn.Module):
    """Hides some positions behind a token, in training only."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.out = Linear(3, 8), nn.BatchNorm1d(8), Linear(8, 2)
        self.hidden = nn.Parameter(torch.zeros(8))
        self.width = 8

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        if self.training:
            x = torch.where(torch.arange(x.shape[1])[:, None] % 2 == 0, self.hidden, x)
            x = x.view(-1, self.width).view(x.shape)
        return self.out(self.norm(x.mean(1)))


def test_a_parameter_that_only_training_reads_goes_with_its_channels() -> None:
    narrow = Shrinkable(Masked(), (floats(1, 4, 3),))(0.5)
    assert narrow.hidden.shape == (4,)
    narrow.train()(floats(2, 4, 3)).sum().backward()
    assert narrow.hidden.grad is not None


def test_a_size_that_only_training_has_in_its_code_is_refused_with_a_way_out_that_works() -> None:
    def run(m, x):
        x = m.a(x)
        return m.out(x.view(-1, 8) if m.training else x)

    net = Net(run, a=Linear(3, 8), b=Linear(2, 6), out=Linear(8, 2))
    net.run = lambda m, x: m.c(m.b(run(m, x)))
    net.c = Linear(6, 2)
    with pytest.raises(ModelError, match=r"in 'out', .*\(in training\).*keep=\[\"a.bias\"\] works"):
        Shrinkable(net, (floats(2, 3),))(0.5)
    narrow = Shrinkable(net, (floats(2, 3),), keep=("a.bias",))(0.5)
    narrow.train()(floats(2, 3)).sum().backward()
    assert narrow.b.weight.shape == (3, 1)


NORMS = {
    "instance": (lambda: nn.InstanceNorm1d(8), "num_features", 4),
    "batch": (lambda: nn.BatchNorm1d(8, affine=False, track_running_stats=False), "num_features", 4),
    "group": (lambda: nn.GroupNorm(2, 8, affine=False), "num_channels", 4),
    "layer": (lambda: nn.LayerNorm(8, elementwise_affine=False), "normalized_shape", (4,)),
}


@pytest.mark.parametrize("kind", NORMS)
def test_norms_without_parameters_know_their_channels(kind: str, recwarn: pytest.WarningsRecorder) -> None:
    make, name, size = NORMS[kind]
    last = kind == "layer"
    net = Net(
        lambda m, x: m.out(m.norm(m.a(x) if last else m.a(x).mT) if last else m.norm(m.a(x).mT).mT),
        a=Linear(3, 8),
        norm=make(),
        out=Linear(8, 2),
    )
    narrow = see(net, floats(2, 5, 3)).narrow
    narrow(floats(2, 5, 3))
    assert getattr(narrow.norm, name) == size
    assert not [each for each in recwarn if "num_features" in str(each.message)]


class Sliced(nn.Module):
    """Remembers a size that it needs, two that it does not, and a number that happens to be one."""

    def __init__(self, entering: int, leaving: int) -> None:
        super().__init__()
        self.a = Linear(entering, leaving + 2)
        self.leaving, self.dim, self.groups = leaving, leaving, entering
        self.steps = leaving

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)[:, : self.leaving].relu()


def test_many_modules_that_remember_sizes_take_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer has sizes of its own, but what one module of a class needs, the others are likely to need."""
    sizes = list(range(10, 40, 2))
    layers = [Sliced(a, b) for a, b in zip([3, *sizes], sizes, strict=False)]
    net = nn.Sequential(*layers, Linear(layers[-1].leaving, 2))
    runs = []
    compare = check.compare
    monkeypatch.setattr(settle, "compare", lambda *args, **named: runs.append(1) or compare(*args, **named))
    narrow = Shrinkable(net, (floats(2, 3),))(0.5)
    assert [layer.leaving for layer in narrow[:-1]] == [layer.a.out_features - 1 for layer in narrow[:-1]]
    assert len(runs) < 40  # 20 were seen


class Wide(nn.Conv1d):
    """One of PyTorch's layers with a name of its own."""


def test_sizes_that_are_told_by_tensors_are_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    compare = check.compare
    monkeypatch.setattr(settle, "compare", lambda *args, **named: runs.append(1) or compare(*args, **named))
    net = nn.Sequential(Wide(3, 8, 1), *(Wide(8, 8, 1, groups=8) for _ in range(6)), Wide(8, 2, 1))
    narrow = Shrinkable(net, (floats(2, 3, 5),))(0.5)
    assert [(layer.in_channels, layer.groups) for layer in narrow[1:-1]] == [(4, 4)] * 6
    assert len(runs) < 5


def test_a_network_that_cannot_be_settled_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.out = Linear(3, 8), Linear(8, 2)
            for number in range(30):
                setattr(self, f"size{number}", 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.a(x).view(-1, int("8")))

    runs = []
    compare = check.compare
    monkeypatch.setattr(settle, "compare", lambda *args, **named: runs.append(1) or compare(*args, **named))
    with pytest.raises(ModelError, match="in the network, shape"):
        Shrinkable(Many(), (floats(3, 3),))(0.5)
    assert len(runs) < 1000


def test_what_is_named_as_a_way_out_works() -> None:
    net = Net(lambda m, x: m.out(m.b(m.a(x).relu()).reshape(-1, 8)), a=Linear(3, 6), b=Linear(6, 8), out=Linear(8, 2))
    with pytest.raises(ModelError, match=r"keep=\[\"b.bias\"\] works"):
        Shrinkable(net, (floats(3, 3),))(0.5)
    assert Shrinkable(net, (floats(3, 3),), keep=("b.bias",))(0.5)(floats(3, 3)).shape == (3, 2)


def test_a_parameter_that_nothing_reads_in_either_mode_stays() -> None:
    assert shrunk(Net(lambda m, x: m.out(m.a(x)), a=Linear(3, 8), out=Linear(8, 2), spare=raw(8)), floats(1, 3)).why(
        "spare"
    )


class Stage(nn.Module):
    """Takes another way where it has as many outputs as inputs, which it tells by what it remembers."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        if inputs != outputs:
            self.shortcut = Linear(inputs, outputs)
        self.layer = Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        past = self.shortcut(x).view(-1, self.outputs) if self.inputs != self.outputs else x
        return past + self.layer(x).relu()


def test_sizes_that_modules_of_a_class_compare_change_at_once() -> None:
    net = nn.Sequential(Linear(3, 8), Stage(8, 8), Stage(8, 16), Stage(16, 16), Stage(16, 32), Linear(32, 2))
    seen = shrunk(net, floats(5, 3))
    assert [(stage.inputs, stage.outputs) for stage in list(seen.narrow)[1:-1]] == [(4, 4), (4, 8), (8, 8), (8, 16)]
