"""Which layers are composed, with which R1 and R2, and what users are told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from potluck.core.errors import ModelError
from potluck.core.networks import ByWidth
from potluck.core.types import Context, Level, Task
from potluck.parts.compose.banks import Settings, find_banks, outputs_of
from potluck.parts.compose.layers import Bank

USUAL = Settings(0.125, 0.25)
WIDTHS = (1.0, 0.5, 0.25)


class Assorted(nn.Module):
    """One of each: a stem, a convolution, a shortcut, a depthwise one, frozen, shared and fixed ones, a head."""

    def __init__(self, width: float, full: int = 32) -> None:
        super().__init__()
        n = round(full * width)
        self.stem = nn.Conv2d(1, n, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(n, n, 3, padding=1), nn.BatchNorm2d(n))
        self.shortcut = nn.Conv2d(n, n, 1)
        self.depthwise = nn.Conv2d(n, n, 3, padding=1, groups=n)
        self.frozen = nn.Conv2d(n, n, 1).requires_grad_(False)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(n, n))
        self.kernel = nn.Conv2d(n, n, 3 if width == 1 else 1, padding=int(width == 1))
        self.first = nn.Linear(n, n)
        self.second = nn.Linear(n, n)
        self.second.weight = self.first.weight
        self.some = nn.Linear(n, n) if width > 0.25 else nn.Identity()
        self.wide = nn.Linear(n, 8)
        self.fixed = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, pictures: Tensor) -> Tensor:
        features = self.body(self.stem(pictures)) + self.shortcut(self.stem(pictures))
        features = self.kernel(self.frozen(self.depthwise(features))).mean((2, 3))
        logits: Tensor = self.head(self.fixed(self.wide(self.some(self.second(self.first(self.normed(features)))))))
        return logits


HEAD = ("head.weight", "head.bias")
PICTURE = torch.zeros(1, 1, 4, 4)


def context(
    model: Callable[[float], nn.Module],
    example: Tensor = PICTURE,
    head: tuple[str, ...] = HEAD,
    widths: tuple[float, ...] = WIDTHS,
) -> Context:
    levels = tuple(Level(f"w{width:g}", width) for width in widths)
    heads = dict.fromkeys((level.name for level in levels), head)
    return Context(Task(ByWidth(model), levels, 2, heads, (example, torch.zeros(1, dtype=torch.long))), 0, seed=0)


def found_in(ctx: Context, settings: Settings = USUAL) -> dict[str, object]:
    """(R1, R2), or why a layer is left."""
    banks = find_banks(settings, ctx)
    return {name: (each.size, each.count) if isinstance(each, Bank) else each for name, each in banks.items()}


def test_every_layer_has_a_basis_or_a_reason() -> None:
    assert found_in(context(Assorted)) == {
        "stem": "the stem",
        "body.0": (4, 8),
        "shortcut": "a 1x1 convolution",
        "depthwise": "a grouped convolution",
        "frozen": "it is frozen",
        "normed": "its weight is computed",
        "kernel": "its kernel is another at level 'w0.5'",
        "first": "it shares its weight with another layer",
        "second": "it shares its weight with another layer",
        "some": "level 'w0.25' has no such layer",
        "wide": (4, 2),
        "fixed": "the same at every level",
        "head": "the head",
    }


def test_names_change_what_is_composed() -> None:
    def found(**names: tuple[str, ...]) -> set[str]:
        banks = found_in(context(Assorted), Settings(0.125, 0.25, **names))
        return {layer for layer, each in banks.items() if isinstance(each, tuple)}

    usual = {"body.0", "wide"}
    assert found() == usual
    assert found(whole=("wide",)) == {"body.0"}
    assert found(whole=("body",)) == {"wide"}
    assert found(compose=("shortcut", "fixed", "head")) == usual | {"shortcut", "fixed", "head"}
    assert found(whole=("body",), compose=("body.0",)) == usual  # the name that says more counts
    assert found(compose=("body",), whole=("body.0",)) == {"wide"}
    assert found(compose=("body",), whole=("body",)) == {"wide"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(0.125, 0.25, compose=("bodi",)), "compose: there is no layer or block 'bodi'; did you mean 'body'?"),
        (Settings(0.125, 0.25, whole=("haed",)), "whole: there is no layer or block 'haed'; did you mean 'head'?"),
        (
            Settings(0.125, 0.25, compose=("depthwise",)),
            "compose names 'depthwise', which cannot be composed: a grouped convolution",
        ),
        (Settings(0.125, 0.25, whole=("body", "wide")), "stem: the stem; body.0: named in whole; shortcut: a 1x1"),
        (
            Settings(0.5, 0.25),
            r"'body.0' has 8 inputs at level 'w0.25', which R1 = 16 \(basis_size 0.5 of 32 inputs at width 1\) "
            r"does not divide; R1 should divide its inputs at every level \(1, 2, 4, 8\), or the layer be named in",
        ),
        (Settings(0.3, 0.25), r"which R1 = 9.6 \(basis_size 0.3 of 32 inputs"),
        (Settings(0.01, 0.25), r"which R1 = 0.32 \(basis_size 0.01 of 32 inputs"),
    ],
)
def test_mistakes_are_explained(settings: Settings, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        find_banks(settings, context(Assorted))


def test_widths_that_share_no_divisor_are_refused() -> None:
    with pytest.raises(ModelError, match=r"'body.0' has 19 inputs at level 'w0.3'.*\(1\)"):
        find_banks(USUAL, context(lambda width: Assorted(width, 64), widths=(1.0, 0.3)))


def test_a_network_may_declare_bases() -> None:
    def declaring(bases: object) -> Context:
        def model(width: float) -> nn.Module:
            net = Assorted(width)
            vars(net)["neural_basis"] = bases
            return net

        return context(model)

    found = found_in(declaring({"body.0": (2, 18)}))
    assert (found["body.0"], found["wide"]) == ((2, 18), (4, 2))
    for bases, words in (
        ({"bodi.0": (2, 3)}, "neural_basis: there is no layer 'bodi.0'; did you mean 'body.0'"),
        ({"body.0": (2, 0)}, r"neural_basis has \(2, 0\) for 'body.0'"),
        ({"body.0": (2.0, 1)}, r"neural_basis has \(2.0, 1\) for 'body.0'"),
        ({"body.0": (3, 1)}, r"'body.0' has 32 inputs at level 'w1', which R1 = 3 \(the network's neural_basis\)"),
        ({"body.0": (2, 19)}, r"R2 = 19 \(the network's neural_basis\), but only R1·k·k = 18"),
    ):
        with pytest.raises(ModelError, match=words):
            find_banks(USUAL, declaring(bases))


def test_no_more_pieces_than_can_be_orthogonal() -> None:
    def square(width: float) -> nn.Module:
        n = round(64 * width)
        return nn.Sequential(nn.Linear(8, n), nn.Linear(n, n), nn.Linear(n, 2))

    ctx = context(square, torch.zeros(1, 8), ("2.weight", "2.bias"))
    assert found_in(ctx)["1"] == (8, 8)  # a quarter of the outputs would be 16


def test_a_share_is_blind_to_rounding_noise_and_counts_are_rounded() -> None:
    def model(width: float) -> nn.Module:
        return nn.Sequential(nn.Linear(8, round(100 * width)), nn.Linear(round(100 * width), 21), nn.Linear(21, 2))

    ctx = context(model, torch.zeros(1, 8), ("2.weight", "2.bias"), widths=(1.0, 0.7))
    assert 0.07 * 100 != 7
    with pytest.raises(ModelError, match="R1 = 7 "):  # 7 does not divide 100
        find_banks(Settings(0.07, 0.25), ctx)
    assert found_in(ctx, Settings(0.05, 0.1))["1"] == (5, 2)


class Recurrent(nn.Module):
    """Reads features, or tokens, with a recurrent layer of a kind."""

    def __init__(self, width: float, kind: type[nn.Module], embed: bool, **options: object) -> None:
        super().__init__()
        hidden = round(32 * width)
        self.embed = nn.Embedding(5, hidden) if embed else nn.Identity()
        self.layer = kind(hidden if embed else 8, hidden, **options)
        self.cell = isinstance(self.layer, nn.RNNCellBase)
        self.head = nn.Linear(hidden * (2 if options.get("bidirectional") else 1), 2)

    def forward(self, inputs: Tensor) -> Tensor:
        output = self.layer(self.embed(inputs))
        while isinstance(output, tuple):
            output = output[0]
        logits: Tensor = self.head(output if self.cell else output[:, -1])
        return logits


@pytest.mark.parametrize(
    ("kind", "embed", "options", "expected"),
    [
        (nn.LSTM, True, {"batch_first": True}, {"weight_ih_l0": (4, 4), "weight_hh_l0": (4, 4)}),
        (nn.LSTM, False, {"batch_first": True}, {"weight_ih_l0": "the stem", "weight_hh_l0": (4, 4)}),
        (
            nn.GRU,
            False,
            {"batch_first": True, "bidirectional": True, "num_layers": 2},
            {
                "weight_ih_l0": "the stem",
                "weight_hh_l0": (4, 4),
                "weight_ih_l0_reverse": "the stem",
                "weight_hh_l0_reverse": (4, 4),
                "weight_ih_l1": (8, 8),
                "weight_hh_l1": (4, 4),
                "weight_ih_l1_reverse": (8, 8),
                "weight_hh_l1_reverse": (4, 4),
            },
        ),
        (nn.LSTMCell, False, {}, {"weight_ih": "the stem", "weight_hh": (4, 4)}),
    ],
    ids=["after an embedding", "first", "two layers both ways", "cell"],
)
def test_each_matrix_of_a_recurrent_layer_has_a_basis(
    kind: type[nn.Module], embed: bool, options: dict[str, object], expected: dict[str, object]
) -> None:
    shape = (1, 8) if embed or not options else (1, 3, 8)
    example = torch.zeros(shape, dtype=torch.long if embed else torch.float)
    found = found_in(context(lambda width: Recurrent(width, kind, embed, **options), example))
    assert found == {**{f"layer.{name}": each for name, each in expected.items()}, "head": "the head"}


def test_the_count_of_a_recurrent_matrix_is_a_share_of_one_gate() -> None:
    ctx = context(lambda width: Recurrent(width, nn.LSTM, True, batch_first=True), torch.zeros(1, 8, dtype=torch.long))
    assert found_in(ctx, Settings(0.25, 0.125))["layer.weight_hh_l0"] == (8, 4)  # an eighth of 32, not of 128


def test_with_one_width_nothing_is_asked_to_differ() -> None:
    assert found_in(context(Assorted, widths=(1.0,)))["fixed"] == (1, 1)
    assert found_in(context(Assorted, widths=(0.5,)))["fixed"] == "the same at every level"


def test_outputs_are_counted_over_all_calls_in_the_order_of_running() -> None:
    found = outputs_of(Assorted(0.25), PICTURE)
    assert list(found)[:3] == ["stem", "body.0", "shortcut"]
    assert (found["stem"], found["body.0"], found["wide"]) == (2 * 8 * 16, 8 * 16, 8)
