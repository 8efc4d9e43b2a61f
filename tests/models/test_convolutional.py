"""What each convolutional family does, on weights simple enough to know the answer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from potluck.core.errors import ModelError
from potluck.models.cnn import heterofl_cnn
from potluck.models.flanc import flanc_cnn, flanc_resnet18
from potluck.models.lg import lg_cnn, lg_mlp
from potluck.models.preresnet import PreActivationBlock, preresnet18
from potluck.models.resnet import BasicBlock, resnet18, resnet34


def kinds(net: nn.Sequential) -> list[str]:
    return [type(module).__name__ for module in net]


def test_heterofl_cnn_pools_between_its_convolutions_only() -> None:
    layer = ["Conv2d", "BatchNorm2d", "ReLU"]
    assert kinds(heterofl_cnn(0.1).body) == [*layer, "MaxPool2d", *layer, "MaxPool2d", *layer, "MaxPool2d", *layer]


def test_heterofl_cnn_tracks_statistics_and_starts_with_an_unbiased_head() -> None:
    net = heterofl_cnn(0.1)
    assert "body.1.running_mean" in net.state_dict()
    assert net.head.bias.eq(0).all()


def test_heterofl_cnn_takes_digits_of_8x8_but_nothing_smaller() -> None:
    assert heterofl_cnn(0.1, shape=(1, 8, 8))(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    with pytest.raises(ModelError, match="at least 8x8 pixels"):
        heterofl_cnn(shape=(1, 7, 8))


def test_heterofl_cnn_of_other_depth() -> None:
    convolutions = [m for m in heterofl_cnn(0.5, hidden=(6, 9)).modules() if isinstance(m, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels) for c in convolutions] == [(1, 3), (3, 5)]


def test_preactivation_identity_carries_the_raw_input() -> None:
    block = PreActivationBlock(2, 2, stride=1)
    nn.init.zeros_(block.conv2.weight)
    x = -torch.rand(3, 2, 4, 4)
    assert torch.equal(block(x), x)


def test_preactivation_shortcut_carries_the_normalised_input() -> None:
    block = PreActivationBlock(1, 1, stride=2).eval()  # fresh statistics: normalising changes (almost) nothing
    nn.init.zeros_(block.conv2.weight)
    nn.init.ones_(block.shortcut.weight)
    x = torch.tensor([[[[5.0, 0.0], [0.0, 0.0]]]])
    assert block(x).item() == pytest.approx(5, rel=1e-4)
    assert block(-x).item() == 0  # the ReLU came first


@pytest.mark.parametrize(("blocks", "count"), [((1, 1, 1, 2), 5), ((2, 2, 2, 2), 8)])
def test_preresnet_blocks(blocks: tuple[int, ...], count: int) -> None:
    net = preresnet18(0.1, blocks=blocks)
    assert len(net.body) == count
    assert net.body(torch.zeros(2, 7, 32, 32)).shape == (2, 52, 4, 4)
    assert net.head.bias.eq(0).all()


def test_basic_block_ends_in_a_relu_of_the_sum() -> None:
    block = BasicBlock(2, 2, stride=1)
    nn.init.zeros_(block.norm2.weight)
    x = torch.randn(3, 2, 4, 4)
    assert torch.equal(block(x), x.relu())


@pytest.mark.parametrize(("factory", "blocks"), [(resnet18, [2, 2, 2, 2]), (resnet34, [3, 4, 6, 3])])
def test_resnet_stages(factory, blocks: list[int]) -> None:
    net = factory(0.1)
    assert [len(stage) for stage in (net.layer1, net.layer2, net.layer3, net.layer4)] == blocks
    firsts = [stage[0].shortcut for stage in (net.layer1, net.layer2, net.layer3, net.layer4)]
    assert [isinstance(shortcut, nn.Identity) for shortcut in firsts] == [True, False, False, False]


def test_flanc_stem_keeps_its_width() -> None:
    assert flanc_cnn(0.25).stem.out_channels == 64
    assert flanc_cnn(0.25).conv1.weight.shape == (32, 64, 3, 3)
    net = flanc_resnet18(0.25)
    assert net.stem[0].out_channels == 64
    assert net.layer1[0].shortcut[0].weight.shape == (16, 64, 1, 1)
    assert isinstance(flanc_resnet18().layer1[0].shortcut, nn.Identity)


def test_flanc_cnn_has_no_activation_after_its_stem() -> None:
    assert kinds(flanc_cnn())[:3] == ["Conv2d", "Conv2d", "ReLU"]


def test_flanc_resnet_initialises_convolutions_by_fan_out() -> None:
    torch.manual_seed(0)
    weight = flanc_resnet18(0.5).layer4[0].conv1.weight  # 256 x 128 x 3 x 3
    assert weight.std().item() == pytest.approx((2 / (9 * 256)) ** 0.5, rel=0.02)


@pytest.mark.parametrize("build", [resnet18, resnet34])
def test_resnets_start_as_fedhms_authors_draw_them(build) -> None:
    torch.manual_seed(0)
    # what the authors' networks were measured to have; PyTorch's own start has 0.0085 and 0.0255
    expected = {"kaiming": (0.0208, 0.0635), "torch": (0.0085, 0.0255)}
    for start, (convolution, classifier) in expected.items():
        net = build(start=start, classes=10)
        assert net.layer4[1].conv1.weight.std().item() == pytest.approx(convolution, rel=0.02)
        assert net.head.weight.std().item() == pytest.approx(classifier, rel=0.05)
    default, asked = (seeded_weights(build, **options) for options in ({}, {"start": "kaiming"}))
    assert all(torch.equal(default[name], asked[name]) for name in default)
    with pytest.raises(ModelError, match="start is 'zero', but it should be one of kaiming, torch"):
        build(0.125, start="zero")


def seeded_weights(build, **options) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return build(0.125, **options).state_dict()


def test_lg_networks_give_logits() -> None:
    torch.manual_seed(0)
    for net, shape in ((lg_mlp(), (1, 28, 28)), (lg_cnn(), (3, 32, 32))):
        assert net(torch.randn(8, *shape)).min() < 0
    assert [m.out_features for m in lg_mlp(0.5) if isinstance(m, nn.Linear)] == [256, 128, 128, 64, 10]


def test_lg_cnn_needs_16_pixels() -> None:
    assert lg_cnn(shape=(1, 16, 16))(torch.zeros(1, 1, 16, 16)).shape == (1, 10)
    with pytest.raises(ModelError, match="at least 16x16 pixels"):
        lg_cnn(shape=(1, 15, 16))


@pytest.mark.parametrize("build", [resnet18, resnet34])
def test_resnets_take_the_channels_of_their_four_stages(build) -> None:
    net = build(0.5, hidden=(16, 32, 64, 128))
    assert [net.get_submodule(f"layer{stage}.0.conv1").out_channels for stage in (1, 2, 3, 4)] == [8, 16, 32, 64]
    with pytest.raises(ModelError, match="hidden is \\(16, 32\\), but a ResNet has the channels of 4 stages"):
        build(hidden=(16, 32))
