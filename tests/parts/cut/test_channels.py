"""Counts, plans and shapes of channels: whatever the network, one leads back to the other."""

from __future__ import annotations

from functools import cache
from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from potluck.core.errors import ModelError
from potluck.parts.cut.channels import STAYS, Channels, channels_by_size
from potluck.parts.cut.choice import Block, Choice, Disjoint, Largest, Prefix, Random, Rolling
from potluck.parts.cut.kept import Kept
from potluck.parts.shrink.shrinkable import Shrinkable
from potluck.parts.width.between import counts_between

SOME = settings(max_examples=25, deadline=None)
WIDTHS = st.floats(0.02, 1.0)
CHOICES: list[Choice] = [
    Prefix(),
    Rolling(3),
    Disjoint(1, 2),
    Random(5),
    Largest(tuple(float(at % 5) for at in range(99))),
]


class Heads(nn.Module):
    """Two heads of 6 over some features, a hidden layer of 7, and a concatenation."""

    def __init__(self, features: int = 10) -> None:
        super().__init__()
        self.stem, self.qkv, self.proj = nn.Linear(4, features), nn.Linear(features, 36), nn.Linear(12, features)
        self.up, self.out = nn.Linear(features, 7), nn.Linear(7 + features, 3)
        self.heads = 2

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.proj(((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).flatten(2))
        return self.out(torch.cat([self.up(x).relu(), x], -1))


class Gates(nn.Module):
    """Both directions of a layer of 6, read at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.out = nn.GRU(4, 6, bidirectional=True, batch_first=True), nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.out(self.rnn(x)[0][:, -1])
        return result


def shuffled() -> nn.Module:
    """Channels in pieces that must stay equally long."""
    return nn.Sequential(nn.Conv2d(1, 12, 1), nn.ChannelShuffle(2), nn.Conv2d(12, 8, 1, groups=2), nn.Conv2d(8, 2, 1))


def made(net: nn.Module, *shape: int) -> Channels:
    return Shrinkable(net, (torch.zeros(1, *shape),)).findings.channels


NETS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "layers": (nn.Sequential(nn.Linear(4, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 5), nn.Linear(5, 2)), (4,)),
    "heads": (Heads(), (5, 4)),
    "shuffled": (shuffled(), (1, 3, 3)),
    "gates": (Gates(), (5, 4)),
}


@cache
def channels_of(name: str) -> Channels:
    net, shape = NETS[name]
    return made(net, *shape)


@pytest.fixture(scope="module")
def channels(request: pytest.FixtureRequest) -> Channels:
    return channels_of(request.param)


EACH = pytest.mark.parametrize("channels", NETS, indirect=True)


@EACH
def test_blocks_share_no_channel_and_have_all_of_them(channels: Channels) -> None:
    assert all(not {*one.channels} & {*other.channels} for one, other in combinations(channels.blocks, 2))
    held = {channel for block in channels.blocks for channel in block.channels}
    found = {channel for dims in channels.ids.values() for ids in dims for channel in ids[ids != STAYS].tolist()}
    assert held == found == set(range(channels.total))


@EACH
@SOME
@given(width=WIDTHS, rounding=st.sampled_from(["ceil", "round"]))
def test_shapes_tell_the_counts(channels: Channels, width: float, rounding: str) -> None:
    counts = channels.counts(width, rounding)
    shapes = channels.plan(counts).shapes
    assert channels.counts_in(shapes) == counts
    assert all(1 <= count <= block.size for count, block in zip(counts, channels.blocks, strict=True))


@EACH
@SOME
@given(width=WIDTHS, choice=st.sampled_from(CHOICES))
def test_shapes_do_not_depend_on_the_choice(channels: Channels, width: float, choice: Choice) -> None:
    counts = channels.counts(width)
    plan = channels.plan(counts, choice)
    assert plan.shapes == channels.plan(counts).shapes
    for name, dims in channels.ids.items():
        for ids, kept in zip(dims, plan[name], strict=True):
            assert kept.size == len(ids)
            assert set((ids == STAYS).nonzero().flatten().tolist()) <= set(kept.indices.tolist())


@EACH
@SOME
@given(width=WIDTHS, choice=st.sampled_from(CHOICES))
def test_a_channel_is_kept_everywhere_or_nowhere(channels: Channels, width: float, choice: Choice) -> None:
    plan = channels.plan(channels.counts(width), choice)
    held = channels.held(plan)
    for name, dims in channels.ids.items():
        for ids, kept in zip(dims, plan[name], strict=True):
            inside = torch.zeros(len(ids), dtype=torch.bool)
            inside[kept.indices] = True
            assert torch.equal(inside, (ids == STAYS) | held[ids.clamp_min(0)]), name


@EACH
def test_full_width_is_everything(channels: Channels) -> None:
    plan = channels.plan(channels.counts(1.0))
    assert not plan.narrowed
    assert channels.counts_in(plan.shapes) == [block.size for block in channels.blocks]


@EACH
def test_narrower_counts_are_no_larger(channels: Channels) -> None:
    counts = [channels.counts(width / 20) for width in range(1, 21)]
    for fewer, more in pairwise(counts):
        assert all(few <= many for few, many in zip(fewer, more, strict=True))


def test_a_layer_of_heads_is_rounded_head_by_head() -> None:
    """12 is two heads of 6: ⌈6 · 0.4⌉ = 3 each; 10 features and 7 hidden units are rounded as they are."""
    channels = channels_of("heads")
    shapes = channels.plan(channels.counts(0.4)).shapes
    assert shapes["proj.weight"] == (4, 6)
    assert shapes["qkv.weight"] == (18, 4)
    assert shapes["up.weight"] == (3, 4)
    assert shapes["out.weight"] == (3, 7)


def test_a_layer_as_large_as_all_heads_stays_as_large_as_they() -> None:
    """12 features and two heads of 6 become 6 and two of 3, as an author writes it, not ⌈4.8⌉ = 5."""
    channels = made(Heads(12), 5, 4)
    shapes = channels.plan(channels.counts(0.4)).shapes
    assert shapes["proj.weight"] == (6, 6)
    assert shapes["stem.weight"] == (6, 4)


@pytest.mark.parametrize(("width", "up", "nearest"), [(0.07, 7, 7), (0.335, 34, 34), (0.334, 34, 33), (0.001, 1, 1)])
def test_rounding(width: float, up: int, nearest: int) -> None:
    channels = channels_by_size({"w": (100,)}, {"w": (50,)}, {})
    assert channels.counts(width) == [up]
    assert channels.counts(width, "round") == [nearest]


def test_choices_in_a_plan_by_hand() -> None:
    net = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2))
    channels = made(net, 2)
    (block,) = channels.blocks
    assert block == Block((0, 1, 2, 3))
    chosen = {
        Rolling(3): [0, 3],
        Disjoint(1, 2): [2, 3],
        Largest((1.0, 7.0, 3.0, 5.0)): [1, 3],
    }
    for choice, kept in chosen.items():
        plan = channels.plan([2], choice)
        assert plan["0.weight"] == (Kept.of(4, kept), Kept.of(2, [0, 1]))
        assert plan["0.bias"] == (Kept.of(4, kept),)
        assert plan["1.weight"] == (Kept.of(2, [0, 1]), Kept.of(4, kept))


def test_all_of_a_block_needs_no_choice() -> None:
    channels = made(nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2)), 2)
    assert channels.plan([4], Rolling(3)) == channels.plan([4])


@pytest.mark.parametrize("change", [{"stem.weight": (5, 4)}, {"qkv.weight": (17, 5)}])
def test_shapes_that_fit_no_counts_are_refused(change: dict[str, tuple[int, ...]]) -> None:
    channels = channels_of("heads")
    shapes = {**channels.plan(channels.counts(0.4)).shapes, **change}
    with pytest.raises(ModelError, match="do not fit the channels found in the wide one"):
        channels.counts_in(shapes)


def test_channels_told_by_sizes() -> None:
    channels = channels_by_size({"a": (8, 3), "b": (2, 8)}, {"a": (4, 3), "b": (2, 4)}, {})
    assert channels.blocks == (Block(tuple(range(8))),)
    assert channels.plan([4], Rolling(2)).take({"a": torch.arange(24).view(8, 3)})["a"][:, 0].tolist() == [6, 9, 12, 15]


def test_channels_told_by_sizes_come_in_declared_parts() -> None:
    channels = channels_by_size({"a": (8,)}, {"a": (4,)}, {"a": (2,)})
    assert channels.ids["a"][0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert channels.plan(channels.counts_in({"a": (4,)}))["a"] == (Kept.of(8, [0, 1, 4, 5]),)


def net_of(*sizes: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(one, other) for one, other in pairwise(sizes)))


def test_counts_of_a_function_of_the_width_that_cuts_as_it_likes() -> None:
    channels, counts = counts_between(net_of(3, 8, 10, 2), net_of(3, 7, 1, 2), (torch.zeros(1, 3),))
    assert counts == [7, 1]
    assert channels.plan(counts).shapes["1.weight"] == (1, 7)


@pytest.mark.parametrize(
    ("narrow", "said"),
    [
        (net_of(3, 9, 10, 2), "no part of the wide one's"),
        (net_of(3, 4, 2), "exist at one width only"),
        (nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 5), nn.Linear(5, 2)), r"\['0.bias'\] exist at one"),
    ],
)
def test_networks_of_which_one_is_no_part_of_the_other(narrow: nn.Module, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        counts_between(net_of(3, 8, 10, 2), narrow, (torch.zeros(1, 3),))


def test_multiples_are_rounded_up_to_as_far_as_there_are_channels() -> None:
    """Another block of 6 may be beside one of 6, so that both make whole multiples of 4."""
    sixes = Channels({}, (Block(tuple(range(6))), Block(tuple(range(6, 12)))), (), {}, {}, {0: 4})
    assert [sixes.counts(width) for width in (0.1, 0.5, 0.7)] == [[4, 1], [4, 3], [6, 5]]
