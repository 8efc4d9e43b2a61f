"""FedHM, table 8: sizes and MACs of the full networks and of those narrowed in width."""

from __future__ import annotations

import pytest
from counting import build, example, millions, parameters

from potluck.parts.paper_counts import fedhm_macs

SHAPES = {"cifar": (3, 32, 32), "tiny-imagenet": (3, 64, 64)}


@pytest.mark.parametrize(
    ("model", "classes", "images", "width", "size", "macs"),
    [
        ("resnet18", 10, "cifar", 1.0, "11.17M", "557.22M"),
        # The paper prints 4.29M, but its MACs are those of width 0.64, which has 4.59M: a typing error.
        ("resnet18", 10, "cifar", 0.64, "4.59M", "229.50M"),
        ("resnet18", 10, "cifar", 0.5, "2.80M", "140.20M"),
        ("resnet18", 10, "cifar", 0.35, "1.37M", "68.61M"),
        ("resnet34", 100, "cifar", 1.0, "21.33M", "1162.47M"),
        ("resnet34", 100, "cifar", 0.64, "8.77M", "478.19M"),
        ("resnet34", 100, "cifar", 0.5, "5.35M", "291.83M"),
        ("resnet34", 100, "cifar", 0.4, "3.42M", "187.53M"),
        ("resnet34", 200, "tiny-imagenet", 1.0, "21.38M", "4649.78M"),
        ("resnet34", 200, "tiny-imagenet", 0.64, "8.80M", "1912.71M"),
        ("resnet34", 200, "tiny-imagenet", 0.5, "5.38M", "1167.26M"),
        ("resnet34", 200, "tiny-imagenet", 0.4, "3.44M", "750.08M"),
    ],
)
def test_row_as_printed(model: str, classes: int, images: str, width: float, size: str, macs: str) -> None:
    net = build(model, width, shape=SHAPES[images], classes=classes)
    assert millions(parameters(net)) == size
    assert millions(fedhm_macs(net, example(SHAPES[images]))) == macs


def test_exact_numbers_behind_the_rows() -> None:
    assert [parameters(build("resnet18", width)) for width in (1.0, 0.64, 0.5, 0.35)] == [
        11_173_962,
        4_589_591,
        2_797_610,
        1_373_160,
    ]
    assert [parameters(build("resnet34", width, classes=100)) for width in (1.0, 0.64)] == [21_328_292, 8_769_303]
    assert fedhm_macs(build("resnet18"), example((3, 32, 32))) == 557_216_768


@pytest.mark.parametrize(
    ("model", "classes", "width", "size", "macs"),
    [
        ("resnet18", 10, 0.64, "4.59M", "229.50M"),  # 41, 82, 164, 328 channels either way
        ("resnet18", 10, 0.35, "1.39M", "70.60M"),  # printed as 1.37M and 68.61M
        ("resnet34", 100, 0.4, "3.45M", "190.70M"),  # printed as 3.42M and 187.53M
    ],
)
def test_rounding_up_as_heterofl_does_would_miss_the_rows(
    model: str, classes: int, width: float, size: str, macs: str
) -> None:
    net = build(model, width, classes=classes, rounding="ceil")
    assert (millions(parameters(net)), millions(fedhm_macs(net, example((3, 32, 32))))) == (size, macs)


def test_the_journal_rows_called_fedrolex_are_split_mix_bases() -> None:
    base18, base34 = parameters(build("resnet18", 0.35)), parameters(build("resnet34", 0.4, classes=100))
    # Printed as 12.33, 4.12, 2.75, 1.37: the first is 9 times the already rounded 1.37.
    assert [millions(count * base18) for count in (9, 3, 2, 1)] == ["12.36M", "4.12M", "2.75M", "1.37M"]
    assert f"{9 * 1.37:.2f}" == "12.33"
    # Printed as 23.97, 10.22, 6.18, 3.42: the middle two are no multiples of the base.
    assert [millions(count * base34) for count in (7, 3, 2, 1)] == ["23.97M", "10.27M", "6.85M", "3.42M"]


def test_full_vit_small_of_fedlora() -> None:
    # The paper's 21.70 comes from a head of 100 classes, although its data have 10.
    assert parameters(build("vit-small", classes=100)) == 21_704_164
    assert parameters(build("vit-small", classes=10)) == 21_669_514
    assert millions(21_704_164) == "21.70M"
