"""Channels divided by something that was computed of all of them, and made as long again."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hand_made import Net, floats, raw, shrunk
from torch.nn import Conv2d, Linear


@pytest.mark.parametrize(
    "norm",
    [
        lambda x: F.normalize(x, dim=-1),
        lambda x: x - x.mean(-1, keepdim=True).expand_as(x),
        lambda x: x / x.abs().sum(-1, keepdim=True).repeat(1, 1, x.shape[-1]).clamp_min(1e-3),
        lambda x: x * torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).expand(-1, -1, x.shape[-1]),
    ],
)
def test_a_norm_over_channels_leaves_them_free(norm) -> None:
    seen = shrunk(Net(lambda m, x: m.out(norm(m.a(x))), a=Linear(3, 8), out=Linear(8, 2)), floats(2, 5, 3), exact=False)
    assert seen.cut == {"a.weight": (4, 3), "a.bias": (4,), "out.weight": (2, 4)}


def test_attention_between_normalised_queries_and_keys() -> None:
    def run(m, x):
        batch, length, _ = x.shape
        x = m.stem(x)
        q, k, v = m.qkv(x).view(batch, length, 3, 2, -1).permute(2, 0, 3, 1, 4)
        weights = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * m.scale).softmax(-1)
        return m.out((weights @ v).transpose(1, 2).flatten(2))

    net = Net(run, stem=Linear(3, 8), qkv=Linear(8, 24), scale=raw(2, 1, 1), out=Linear(8, 2))
    seen = shrunk(net, floats(2, 5, 3), exact=False)
    assert seen.cut["qkv.weight"] == (12, 4)


def test_attention_over_channels() -> None:
    """Cross-covariance: the weights are channels by channels."""

    def run(m, x):
        q, k, v = m.qkv(x).flatten(2).view(len(x), 3, 2, -1, x.shape[-1] ** 2).unbind(1)
        weights = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT).softmax(-1)
        return m.out((weights @ v).reshape(len(x), -1, *x.shape[2:]))

    seen = shrunk(Net(run, qkv=Conv2d(3, 24, 1), out=Conv2d(8, 2, 1)), floats(1, 3, 4, 4), exact=False)
    assert seen.cut["qkv.weight"] == (12, 3, 1, 1)


def test_padding_in_front_of_a_sum_says_which_channels_follow() -> None:
    def run(m, x):
        x = m.stem(x)
        more = m.block(x)
        return m.out(F.pad(x, (0, more.shape[1] - x.shape[1])) + more)

    seen = shrunk(Net(run, stem=Linear(3, 8), block=Linear(8, 16), out=Linear(16, 2)), floats(2, 3))
    assert seen.kept("out.weight", 1) == [0, 1, 2, 3, 8, 9, 10, 11]


def test_a_fourier_transform_along_positions_that_shortens_them_leaves_channels_free() -> None:
    def run(m, x):
        waves = torch.fft.rfft(m.a(x), dim=1)
        return m.out(torch.fft.irfft(waves * m.filter.unsqueeze(-1), n=x.shape[1], dim=1))

    net = Net(run, a=Linear(3, 8), filter=raw(4), out=Linear(8, 2))
    assert shrunk(net, floats(2, 6, 3)).cut == {"a.weight": (4, 3), "a.bias": (4,), "out.weight": (2, 4)}


def test_heads_as_the_middle_dimension_of_a_weight() -> None:
    """(model, heads, width of a head): the heads stay, the model and each head are cut."""

    def run(m, x):
        x = m.stem(x)
        q, k, v = (torch.einsum("blh,hnd->blnd", x, weight) for weight in (m.q, m.k, m.v))
        weights = torch.einsum("bind,bjnd->bnij", q + m.bias, k).softmax(-1)
        return m.out(torch.einsum("bnij,bjnd,hnd->bih", weights, v, m.o))

    parts = {name: raw(12, 4, 6) for name in "qkvo"}
    net = Net(run, stem=Linear(3, 12), bias=raw(4, 6), out=Linear(12, 2), **parts)
    seen = shrunk(net, floats(2, 5, 3), exact=False)
    assert seen.cut["q"] == seen.cut["o"] == (6, 4, 3)
    assert seen.cut["bias"] == (4, 3)
    assert seen.why("q", 1) == "it stacks matrices, of which each is cut"


@pytest.mark.parametrize(("width", "kept"), [(0.5, 8), (0.25, 5)])
def test_a_share_of_each_head_turned_by_its_position(width: float, kept: int) -> None:
    """4 of 16 channels turn in pairs; the other 12 need not come in fours."""

    def run(m, x):
        x = m.a(x).view(*x.shape[:2], 2, -1)
        size = 2 * m.turn.shape[0]
        turned, rest = x[..., :size], x[..., size:]
        one, other = turned.chunk(2, dim=-1)
        angle = torch.arange(x.shape[1])[:, None, None] * m.turn
        turned = torch.cat([one * angle.cos() - other * angle.sin(), other * angle.cos() + one * angle.sin()], -1)
        return m.out(torch.cat([turned, rest], -1).flatten(2))

    net = Net(run, a=Linear(3, 32), turn=raw(2), out=Linear(32, 2))
    assert shrunk(net, floats(2, 5, 3), width=width).cut["a.weight"] == (2 * kept, 3)
