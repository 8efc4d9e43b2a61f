"""Convolutions, norms, embeddings and what else layers are made of."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hand_made import Net, Seen, floats, see, shrunk, tokens
from torch import nn
from torch.nn import Conv2d, ConvTranspose2d, Linear


def between(layer: nn.Module, entering: int = 8, leaving: int = 8) -> Seen:
    """A layer between two convolutions of kernel 1."""
    net = Net(lambda m, x: m.out(m.layer(m.a(x))), a=Conv2d(1, entering, 1), layer=layer, out=Conv2d(leaving, 2, 1))
    return shrunk(net, floats(2, 1, 4, 4))


def test_a_convolution_reads_one_set_of_channels_and_gives_another() -> None:
    seen = between(Conv2d(8, 6, 3), 8, 6)
    assert seen.blocks == [
        (8, "a.weight[0] a.bias[0] layer.weight[1]"),
        (6, "layer.weight[0] layer.bias[0] out.weight[1]"),
    ]
    assert seen.cut["layer.weight"] == (3, 4, 3, 3)
    assert (seen.narrow.layer.in_channels, seen.narrow.layer.out_channels) == (4, 3)


def test_a_depthwise_convolution_passes_channels_on() -> None:
    seen = between(Conv2d(8, 8, 3, groups=8))
    assert seen.blocks == [(8, "a.weight[0] a.bias[0] layer.weight[0] layer.bias[0] out.weight[1]")]
    assert seen.cut["layer.weight"] == (4, 1, 3, 3)
    assert seen.narrow.layer.groups == 4


def test_a_depthwise_convolution_that_makes_several_of_each() -> None:
    seen = between(Conv2d(4, 8, 3, groups=4), 4, 8)
    assert seen.kept("layer.weight") == [0, 1, 2, 3]  # two rows per channel that enters
    assert seen.cut["a.weight"] == (2, 1, 1, 1)
    assert (seen.narrow.layer.groups, seen.narrow.layer.in_channels, seen.narrow.layer.out_channels) == (2, 2, 4)


def test_groups_that_read_several_and_give_one() -> None:
    seen = between(Conv2d(8, 4, 1, groups=4), 8, 4)
    assert seen.kept("a.weight") == [0, 1, 2, 3]
    assert seen.cut["layer.weight"] == (2, 2, 1, 1)
    assert seen.narrow.layer.groups == 2


def test_groups_stay_and_each_becomes_narrower() -> None:
    seen = between(Conv2d(8, 12, 3, groups=2), 8, 12)
    assert seen.kept("a.weight") == [0, 1, 4, 5]
    assert seen.kept("layer.weight") == [0, 1, 2, 6, 7, 8]
    assert seen.cut["layer.weight"] == (6, 2, 3, 3)
    assert seen.kept("out.weight", 1) == [0, 1, 2, 6, 7, 8]
    assert seen.narrow.layer.groups == 2


def test_a_transposed_convolution_has_its_dimensions_the_other_way_round() -> None:
    seen = between(ConvTranspose2d(8, 6, 2), 8, 6)
    assert seen.cut["layer.weight"] == (4, 3, 2, 2)
    assert (seen.narrow.layer.in_channels, seen.narrow.layer.out_channels) == (4, 3)


def test_a_transposed_convolution_in_groups() -> None:
    seen = between(ConvTranspose2d(8, 12, 2, groups=2), 8, 12)
    assert seen.kept("a.weight") == [0, 1, 4, 5]
    assert seen.cut["layer.weight"] == (4, 3, 2, 2)
    assert seen.kept("out.weight", 1) == [0, 1, 2, 6, 7, 8]
    assert (seen.narrow.layer.groups, seen.narrow.layer.out_channels) == (2, 6)


@pytest.mark.parametrize("times", [1, 2])
def test_a_transposed_convolution_by_depth(times: int) -> None:
    seen = between(ConvTranspose2d(4, 4 * times, 2, groups=4), 4, 4 * times)
    assert seen.cut["layer.weight"] == (2, times, 2, 2)
    assert seen.cut["layer.bias"] == (2 * times,)
    assert (seen.narrow.layer.groups, seen.narrow.layer.out_channels) == (2, 2 * times)


@pytest.mark.parametrize("layer", [nn.Conv1d, nn.Conv3d])
def test_convolutions_of_other_dimensions(layer: type[nn.Module]) -> None:
    net = nn.Sequential(
        layer(2, 8, 1), nn.ReLU(), layer(8, 4, 1), nn.Flatten(), nn.Linear(4 * 2 ** (1 if layer is nn.Conv1d else 3), 2)
    )
    inputs = floats(1, 2, 2) if layer is nn.Conv1d else floats(1, 2, 2, 2, 2)
    assert [size for size, _ in shrunk(net, inputs).blocks] == [8, 4]


@pytest.mark.parametrize(
    ("norm", "owned"),
    [
        (nn.BatchNorm2d(8), 2),
        (nn.BatchNorm2d(8, affine=False), 0),
        (nn.BatchNorm2d(8, track_running_stats=False), 2),
        (nn.InstanceNorm2d(8), 0),
        (nn.InstanceNorm2d(8, affine=True), 2),
        (nn.InstanceNorm2d(8, affine=True, track_running_stats=True), 2),
        (nn.GroupNorm(8, 8), 2),
        (nn.GroupNorm(8, 8, affine=False), 0),
    ],
    ids=str,
)
def test_norms_of_each_channel_for_itself(norm: nn.Module, owned: int) -> None:
    net = Net(lambda m, x: m.out(m.norm(m.a(x))), a=Conv2d(1, 8, 1), norm=norm, out=Conv2d(8, 2, 1))
    seen = shrunk(net, floats(2, 1, 4, 4), exact=owned > 0)
    (block,) = seen.blocks
    assert block[0] == 8
    assert len(seen.cut) == 3 + owned
    assert getattr(seen.narrow.norm, "num_features", 4) == 4
    assert getattr(seen.narrow.norm, "num_channels", 4) == 4


def test_running_statistics_are_cut_with_the_channels_and_counters_are_not() -> None:
    seen = between(nn.BatchNorm2d(8))
    norm = seen.narrow.layer
    assert norm.running_mean.shape == norm.running_var.shape == (4,)
    assert norm.num_batches_tracked.shape == ()
    assert torch.equal(norm.running_var, seen.shrink.net.layer.running_var[:4])


def test_layer_norm_over_channels() -> None:
    net = nn.Sequential(Linear(3, 8), nn.LayerNorm(8), Linear(8, 2))
    seen = shrunk(net, floats(1, 3), exact=False)
    assert seen.blocks == [(8, "0.weight[0] 0.bias[0] 1.weight[0] 1.bias[0] 2.weight[1]")]
    assert seen.narrow[1].normalized_shape == (4,)


@pytest.mark.parametrize("norm", [nn.LayerNorm(8, elementwise_affine=False), nn.LayerNorm(8, bias=False), nn.RMSNorm(8),
                                  nn.RMSNorm(8, elementwise_affine=False)], ids=str)  # fmt: skip
def test_norms_over_channels_that_own_less(norm: nn.Module) -> None:
    seen = shrunk(nn.Sequential(Linear(3, 8), norm, Linear(8, 2)), floats(1, 3), exact=False)
    assert seen.narrow[1].normalized_shape == (4,)
    assert len(seen.blocks) == 1


def test_layer_norm_over_channels_and_positions() -> None:
    net = nn.Sequential(Conv2d(1, 4, 1), nn.LayerNorm([4, 3, 3]), Conv2d(4, 2, 1))
    seen = shrunk(net, floats(1, 1, 3, 3), exact=False)
    assert seen.cut["1.weight"] == (2, 3, 3)
    assert seen.narrow[1].normalized_shape == (2, 3, 3)


@pytest.mark.parametrize(("groups", "after"), [(2, 2), (4, 4), (1, 1)])
def test_group_norm_keeps_its_groups(groups: int, after: int) -> None:
    net = nn.Sequential(Conv2d(1, 8, 1), nn.GroupNorm(groups, 8), Conv2d(8, 2, 1))
    seen = shrunk_in_groups(net)
    assert seen.narrow[1].num_groups == after
    assert seen.narrow[1].num_channels == 4


def shrunk_in_groups(net: nn.Module) -> Seen:
    """Channels of a group cannot go to another: only the narrow shapes are certain."""
    seen = see(net, floats(2, 1, 4, 4))
    assert seen.cut["0.weight"] == (4, 1, 1, 1)
    return seen


def test_prelu_with_a_slope_per_channel() -> None:
    seen = between(nn.PReLU(8))
    assert seen.cut["layer.weight"] == (4,)
    assert seen.narrow.layer.num_parameters == 4


def test_prelu_with_one_slope_for_all() -> None:
    assert "layer.weight" not in between(nn.PReLU()).cut


@pytest.mark.parametrize(
    "layer",
    [
        nn.MaxPool2d(2),
        nn.AvgPool2d(2),
        nn.LPPool2d(2, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.AdaptiveMaxPool2d(2),
        nn.Upsample(scale_factor=2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.ReflectionPad2d(1),
        nn.ZeroPad2d(1),
        nn.Dropout2d(),
        nn.Hardswish(),
        nn.GELU(),
        nn.Softplus(),
    ],
    ids=str,
)
def test_pooling_and_activations_pass_channels_on(layer: nn.Module) -> None:
    assert between(layer).blocks == [(8, "a.weight[0] a.bias[0] out.weight[1]")]


def test_pixel_shuffle_takes_four_channels_for_one() -> None:
    seen = between(nn.PixelShuffle(2), 16, 4)
    assert seen.kept("a.weight") == [0, 1, 2, 3, 4, 5, 6, 7]
    assert seen.kept("out.weight", 1) == [0, 1]


def test_pixel_unshuffle_makes_four_of_one() -> None:
    seen = between(nn.PixelUnshuffle(2), 4, 16)
    assert seen.kept("a.weight") == [0, 1]
    assert seen.kept("out.weight", 1) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_pixel_shuffle_to_the_output_keeps_what_makes_it() -> None:
    net = nn.Sequential(Conv2d(1, 8, 1), Conv2d(8, 12, 1), nn.PixelShuffle(2))
    seen = shrunk(net, floats(1, 1, 2, 2))
    assert seen.cut["1.weight"] == (12, 4, 1, 1)


def test_patches_of_pictures_are_read_channel_by_channel() -> None:
    net = Net(lambda m, x: m.out(F.unfold(m.a(x), 2).transpose(1, 2)), a=Conv2d(1, 4, 1), out=Linear(16, 2))
    assert shrunk(net, floats(1, 1, 4, 4)).kept("out.weight", 1) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_the_rows_of_an_embedding_stay() -> None:
    seen = shrunk(nn.Sequential(nn.Embedding(10, 8), Linear(8, 3)), tokens(1, 5))
    assert seen.blocks == [(8, "0.weight[1] 1.weight[1]")]
    assert seen.cut == {"0.weight": (10, 4), "1.weight": (3, 4)}
    assert "one row per token" in seen.why("0.weight")
    assert (seen.narrow[0].num_embeddings, seen.narrow[0].embedding_dim) == (10, 4)


def test_a_bag_of_embeddings() -> None:
    seen = shrunk(nn.Sequential(nn.EmbeddingBag(10, 8, mode="mean"), Linear(8, 3)), tokens(2, 5))
    assert seen.cut == {"0.weight": (10, 4), "1.weight": (3, 4)}


def test_an_output_tied_to_the_embedding_stays_tied() -> None:
    net = Net(
        lambda m, x: m.out(m.mid(m.tokens(x))),
        tokens=nn.Embedding(10, 8),
        mid=Linear(8, 8),
        out=Linear(8, 10, bias=False),
    )
    net.out.weight = net.tokens.weight
    seen = shrunk(net, tokens(1, 5))
    assert seen.narrow.out.weight is seen.narrow.tokens.weight
    assert seen.narrow.out.weight.shape == (10, 4)
    assert (seen.narrow.out.in_features, seen.narrow.out.out_features) == (4, 10)
    assert [size for size, _ in seen.blocks] == [8]  # the tie makes both sides of mid one


@pytest.mark.parametrize("dim", [0, 1])
def test_weight_norm_of_old(dim: int) -> None:
    with pytest.warns(FutureWarning):
        layer = nn.utils.weight_norm(Conv2d(8, 6, 1), dim=dim)
    seen = between(layer, 8, 6)
    assert seen.cut["layer.weight_v"] == (3, 4, 1, 1)
    assert seen.cut["layer.weight_g"] == ((3, 1, 1, 1) if dim == 0 else (1, 4, 1, 1))


def test_weight_norm_as_a_parametrization() -> None:
    seen = between(nn.utils.parametrizations.weight_norm(Conv2d(8, 6, 1)), 8, 6)
    assert seen.cut["layer.parametrizations.weight.original0"] == (3, 1, 1, 1)
    assert seen.cut["layer.parametrizations.weight.original1"] == (3, 4, 1, 1)
    assert seen.narrow.layer.weight.shape == (3, 4, 1, 1)


@pytest.mark.parametrize("normed", [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm])
def test_spectral_norm(normed) -> None:
    net = nn.Sequential(Linear(3, 8), normed(Linear(8, 6)), nn.ReLU(), Linear(6, 2))
    seen = see(net, floats(1, 3))
    assert seen.narrow[1].weight.shape == (3, 4)
    assert seen.narrow(floats(1, 3)).shape == (1, 2)
