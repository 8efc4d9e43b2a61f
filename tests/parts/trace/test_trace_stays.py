"""What has to stay, and the reason that is given."""

from __future__ import annotations

import pytest
import torch
from hand_made import Net, floats, raw, see, shrunk, tokens
from torch import nn
from torch.nn import Linear


def test_inputs_and_outputs_stay() -> None:
    seen = shrunk(nn.Sequential(Linear(4, 8), Linear(8, 6)), floats(1, 4), width=0.25)
    assert seen.cut == {"0.weight": (2, 4), "0.bias": (2,), "1.weight": (6, 2)}
    assert seen.why("1.weight") == seen.why("1.bias") == "it is the network's output"
    assert seen.why("0.weight", 1)
    assert seen.why("0.weight", 0) == ""


def test_every_output_of_several_stays() -> None:
    net = Net(
        lambda m, x: {"a": m.a(m.stem(x)), "more": [m.b(m.stem(x))]}, stem=Linear(3, 8), a=Linear(8, 4), b=Linear(8, 6)
    )
    seen = shrunk(net, floats(1, 3))
    assert seen.cut == {"stem.weight": (4, 3), "stem.bias": (4,), "a.weight": (4, 4), "b.weight": (6, 4)}


def test_features_given_out_beside_the_answer_stay() -> None:
    def run(m, x):
        features = m.stem(x)
        return m.out(features), features

    seen = see(Net(run, stem=Linear(3, 8), out=Linear(8, 2)), floats(1, 3))
    assert not seen.plan.narrowed
    assert seen.why("stem.weight") == "it is the network's output"


def test_a_channel_picked_by_number_keeps_its_layer() -> None:
    net = Net(lambda m, x: m.out(m.a(x)) * m.a(x)[:, 5:6].sum() + m.a(x)[:, 3, None], a=Linear(3, 8), out=Linear(8, 2))
    seen = see(net, floats(1, 3))
    assert "a.weight" not in seen.plan.narrowed
    assert "picked by number" in seen.why("a.weight")
    assert "select" in seen.why("a.weight")


def test_what_is_picked_and_never_used_keeps_nothing() -> None:
    def run(m, x):
        hidden = m.a(x)
        hidden[:, 3]
        return m.out(hidden)

    assert shrunk(Net(run, a=Linear(3, 8), out=Linear(8, 2)), floats(1, 3)).cut["a.weight"] == (4, 3)


def test_channels_read_by_a_list_of_numbers_stay() -> None:
    net = Net(lambda m, x: m.out(m.a(x)[:, [0, 2, 1, 7]]), a=Linear(3, 8), out=Linear(4, 2))
    seen = see(net, floats(1, 3))
    assert not seen.plan.narrowed
    assert "read by index" in seen.why("a.weight")


def test_a_constant_as_long_as_the_channels_keeps_them() -> None:
    scale = torch.arange(1.0, 9.0)
    net = Net(lambda m, x: m.out(m.b(m.a(x) * scale)), a=Linear(3, 8), b=Linear(8, 6), out=Linear(6, 2))
    seen = shrunk(net, floats(1, 3))
    assert seen.blocks == [(6, "b.weight[0] b.bias[0] out.weight[1]")]
    assert "mul in the network" in seen.why("a.weight")


def test_a_buffer_as_long_as_the_channels_goes_with_them() -> None:
    net = Net(lambda m, x: m.out(m.a(x) * m.scale), a=Linear(3, 8), out=Linear(8, 2))
    net.register_buffer("scale", torch.arange(1.0, 9.0))
    seen = shrunk(net, floats(1, 3))
    assert seen.narrow.scale.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("linalg_inv_ex", lambda x: torch.linalg.inv(x.transpose(1, 2) @ x)),
        ("linalg_eigh", lambda x: torch.linalg.eigh(x.transpose(1, 2) @ x).eigenvalues),
    ],
)
def test_an_operation_nobody_knows_keeps_what_it_meets(name: str, operation) -> None:
    net = Net(lambda m, x: m.out(operation(m.a(m.stem(x)))), stem=Linear(3, 6), a=Linear(6, 4), out=Linear(4, 2))
    seen = see(net, floats(1, 9, 3))
    assert "a.bias" not in seen.plan.narrowed
    assert "nothing is known about" in seen.why("a.weight")
    assert name in seen.why("a.weight")
    assert seen.narrow.stem.weight.shape == (3, 3)


def test_a_real_fourier_transform_along_channels_keeps_them() -> None:
    net = Net(lambda m, x: m.out(torch.fft.rfft(m.a(x), dim=-1).abs()), a=Linear(3, 8), out=Linear(5, 2))
    seen = see(net, floats(1, 3))
    assert not seen.plan.narrowed
    assert "rfft" in seen.why("a.weight") or "fft_r2c" in seen.why("a.weight")


def test_a_fourier_transform_along_positions_leaves_channels_free() -> None:
    net = Net(lambda m, x: m.out(torch.fft.fft(m.a(x), dim=1).real), a=Linear(3, 8), out=Linear(8, 2))
    assert shrunk(net, floats(1, 4, 3)).cut["a.weight"] == (4, 3)


def test_a_sum_of_channels_with_inputs_keeps_them() -> None:
    net = Net(lambda m, x: m.out(m.b(x + m.a(x))), a=Linear(4, 4), b=Linear(4, 6), out=Linear(6, 2))
    seen = shrunk(net, floats(1, 4))
    assert seen.cut == {"b.weight": (3, 4), "b.bias": (3,), "out.weight": (2, 3)}


def test_a_parameter_that_nothing_reads_stays() -> None:
    seen = shrunk(Net(lambda m, x: m.out(m.a(x)), a=Linear(3, 8), out=Linear(8, 2), spare=raw(8)), floats(1, 3))
    assert seen.why("spare") == "nothing else in the network has these channels"


def test_one_channel_is_never_cut() -> None:
    seen = shrunk(nn.Sequential(Linear(3, 1), Linear(1, 4), Linear(4, 2)), floats(1, 3))
    assert seen.cut == {"1.weight": (2, 1), "1.bias": (2,), "2.weight": (2, 2)}


def test_a_logarithm_of_the_sizes_of_a_vocabulary_stays() -> None:
    net = Net(lambda m, x: m.out(m.tokens(x)).log_softmax(-1), tokens=nn.Embedding(10, 4), out=Linear(4, 10))
    assert shrunk(net, tokens(1, 5)).cut == {"tokens.weight": (10, 2), "out.weight": (10, 2)}


def test_places_that_a_table_is_cut_to_stay() -> None:
    """A table of places is read from the front: it is as long as the longest sequence."""
    net = Net(lambda m, x: m.out(m.a(x) + m.places[: x.shape[1]]), a=Linear(3, 8), out=Linear(8, 2), places=raw(12, 8))
    seen = shrunk(net, floats(1, 5, 3))
    assert seen.cut["places"] == (12, 4)
