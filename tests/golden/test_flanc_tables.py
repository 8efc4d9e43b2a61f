"""FLANC, table 1: the "p-width" columns, and the parts of its ResNet-18 that are never composed."""

from __future__ import annotations

from statistics import mean

import pytest
from counting import build, parameters
from torch import nn

WIDTHS = (0.25, 0.5, 0.75, 1.0)


def test_p_width_resnet18() -> None:
    sizes = [parameters(build("resnet18", width)) for width in WIDTHS]
    assert sizes == [701_466, 2_797_610, 6_288_442, 11_173_962]
    # The paper truncates the last, 11.17, to 11.1.
    assert [f"{size / 1e6:.1f}M" for size in [*sizes[:3], mean(sizes)]] == ["0.7M", "2.8M", "6.3M", "5.2M"]


def test_p_width_cnn() -> None:
    sizes = [parameters(build("flanc-cnn", width)) for width in WIDTHS]
    assert sizes == [43_978, 105_738, 185_930, 284_554]
    # The paper truncates the first, 43,978, to 43K.
    assert [f"{size / 1e3:.0f}K" for size in [*sizes[1:], mean(sizes)]] == ["106K", "186K", "285K", "155K"]


def test_p_width_rnn_comes_close() -> None:
    sizes = [sum(p.numel() for p in build("rnn", width).recurrent.parameters()) for width in WIDTHS]
    assert [f"{size / 1e3:.1f}K" for size in sizes] == ["49.2K", "196.6K", "442.4K", "786.4K"]
    for size, printed in zip(sizes, (49e3, None, 443e3, 787e3), strict=True):  # its 214K fits no square law
        assert printed is None or size == pytest.approx(printed, rel=0.005)


@pytest.mark.parametrize(
    ("width", "shortcuts", "norms", "head"), [(1.0, 172_032, 9_600, 5_130), (0.25, 11_776, 2_528, 1_290)]
)
def test_what_flanc_leaves_uncomposed_in_resnet18(width: float, shortcuts: int, norms: int, head: int) -> None:
    net = build("flanc-resnet18", width)
    convolutions = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert convolutions[0].weight.numel() == 1_728
    assert sum(conv.weight.numel() for conv in convolutions if conv.kernel_size == (1, 1)) == shortcuts
    assert sum(parameters(module) for module in net.modules() if isinstance(module, nn.BatchNorm2d)) == norms
    assert parameters(net.head) == head
