"""The norms of HeteroFL's ablation in its two networks."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from potluck.core.errors import ModelError
from potluck.models.catalogue import find_model
from potluck.models.cnn import heterofl_cnn
from potluck.models.norms import Norm, norm_layer
from potluck.models.preresnet import preresnet18

NORMS = get_args(Norm)
NETWORKS = ("heterofl-cnn", "preresnet18")
LAYERS = {"heterofl-cnn": 4, "preresnet18": 2 * 5 + 1}
FEATURES = torch.tensor([[[[1.0, 3.0]], [[10.0, 30.0]], [[0.0, 0.0]], [[2.0, 2.0]]]])  # 4 channels of 1x2 pixels


def norm_modules(net: nn.Module) -> list[nn.Module]:
    return [module for module in net.modules() if isinstance(module, nn.BatchNorm2d | nn.GroupNorm)]


def test_instance_norm_sees_each_channel_of_each_example_alone() -> None:
    out = norm_layer("in", 4)(FEATURES)
    torch.testing.assert_close(out[0, :2, 0], torch.tensor([[-1.0, 1.0], [-1.0, 1.0]]))
    assert out[0, 2:].eq(0).all()
    other = torch.cat([FEATURES, 100 + 5 * torch.rand(3, 4, 1, 2)])
    torch.testing.assert_close(norm_layer("in", 4)(other)[:1], out)


def test_layer_norm_sees_all_channels_at_once() -> None:
    values = FEATURES.flatten()  # mean 6, variance 1018 / 8 - 36
    expected = (values - 6) / (1018 / 8 - 36) ** 0.5
    torch.testing.assert_close(norm_layer("ln", 4)(FEATURES).flatten(), expected)


def test_group_norm_has_four_groups_of_neighbours() -> None:
    pairs = FEATURES.repeat_interleave(2, dim=1)  # every group is a channel twice
    torch.testing.assert_close(norm_layer("gn", 8)(pairs)[:, ::2], norm_layer("in", 4)(FEATURES))
    assert norm_layer("gn", 8).num_groups == 4


def test_no_norm_changes_nothing_and_learns_nothing() -> None:
    layer = norm_layer("none", 4)
    assert torch.equal(layer(FEATURES), FEATURES)
    assert not list(layer.parameters())


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("norm", NORMS)
def test_every_norm_of_a_network_is_of_the_kind_asked_for(name: str, norm: Norm) -> None:
    found = norm_modules(find_model(name)(1 / 4, norm=norm))
    assert len(found) == (0 if norm == "none" else LAYERS[name])
    if norm == "bn":
        assert all(isinstance(module, nn.BatchNorm2d) for module in found)
    for module in found if norm in ("in", "gn", "ln") else []:
        assert module.num_groups == {"in": module.num_channels, "gn": 4, "ln": 1}[norm]


@pytest.mark.parametrize("name", NETWORKS)
def test_batch_norm_is_the_default(name: str) -> None:
    assert {type(module) for module in norm_modules(find_model(name)(0.1))} == {nn.BatchNorm2d}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("norm", ["in", "gn", "ln"])
def test_the_smallest_level_of_the_paper_trains(name: str, norm: Norm) -> None:
    torch.manual_seed(0)
    net = find_model(name)(1 / 16, norm=norm, shape=(1, 16, 16))  # 4 channels in the first layers: groups of one
    net(torch.randn(2, 1, 16, 16)).logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    assert net.get_parameter("head.weight").grad.abs().sum() > 0


@pytest.mark.parametrize("name", NETWORKS)
def test_channels_that_are_not_four_equal_groups_are_refused(name: str) -> None:
    with pytest.raises(ModelError) as error:
        find_model(name)(0.1, norm="gn")
    assert str(error.value) == (
        "norm is 'gn', but width 0.1 leaves a layer 7 channels, which are not 4 equal groups; "
        "choose widths that leave every layer a multiple of 4"
    )


def test_a_late_layer_that_does_not_divide_is_found_too() -> None:
    with pytest.raises(ModelError, match="leaves a layer 6 channels"):
        heterofl_cnn(0.5, hidden=(8, 12), norm="gn")
    assert norm_modules(heterofl_cnn(0.5, hidden=(8, 12), norm="ln"))[1].num_channels == 6


@pytest.mark.parametrize("name", NETWORKS)
def test_one_pixel_cannot_be_normalised_alone(name: str) -> None:
    with pytest.raises(ModelError, match=r"norm is 'in', but at width 0\.25 the image has shrunk to one pixel"):
        find_model(name)(0.25, norm="in", shape=(1, 8, 8))
    assert find_model(name)(0.25, norm="in", shape=(1, 8, 16))(torch.zeros(1, 1, 8, 16)).shape == (1, 10)
    assert find_model(name)(0.25, norm="ln", shape=(1, 8, 8))(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


def test_odd_images_shrink_as_the_layers_shrink_them() -> None:
    # 9 pixels become 4, 2, 1 by pooling, but 5, 3, 2 by strides with padding.
    with pytest.raises(ModelError, match="one pixel"):
        heterofl_cnn(0.25, norm="in", shape=(1, 9, 9))
    for rows, columns in ((9, 8), (8, 9)):
        assert preresnet18(0.25, norm="in", shape=(1, rows, columns))(torch.zeros(1, 1, rows, columns)).shape == (1, 10)


@pytest.mark.parametrize("name", NETWORKS)
def test_an_unknown_norm_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="norm is 'batch', but it should be one of bn, in, gn, ln, none"):
        find_model(name)(norm="batch")


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(NETWORKS),
    st.sampled_from(NORMS),
    st.floats(min_value=0.01, max_value=1.0),
    st.integers(8, 20),
    st.integers(8, 20),
)
def test_what_is_not_refused_runs_on_a_single_example(name: str, norm: Norm, width: float, rows: int, columns: int):
    try:
        with torch.device("meta"):
            net = find_model(name)(width, norm=norm, shape=(1, rows, columns)).eval()
    except ModelError as error:
        assert str(error).startswith(f"norm is '{norm}'")  # noqa: PT017 (only some draws are refused)
        return
    assert net(torch.zeros(1, 1, rows, columns, device="meta")).shape == (1, 10)
