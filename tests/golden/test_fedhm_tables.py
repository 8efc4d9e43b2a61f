"""FedHM, table 8: sizes and MACs of the full networks, of those in factors and of those narrowed in width."""

from __future__ import annotations

import pytest
import torch
from counting import build, example, millions, parameters
from torch import Tensor, nn

from potluck.core.errors import ModelError
from potluck.core.networks import ByWidth
from potluck.core.types import Context, Level, Task
from potluck.methods.fedhm import FedHM
from potluck.models.catalogue import find_model
from potluck.parts.cost.paper_counts import fedhm_macs
from potluck.parts.cut.plan import shapes_of
from potluck.study.costs import costs

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


def two(shape: tuple[int, ...]) -> Tensor:
    """Two inputs: batch norm that keeps no statistics cannot run on one."""
    return example(shape).expand(2, *shape)


def in_factors(model: str, classes: int, images: str, gamma: float, method: FedHM = FedHM()) -> nn.Module:  # noqa: B008
    """The network that FedHM makes of a plain one at a rank ratio, on the meta device."""

    def plain(width: float) -> nn.Module:
        return build(model, width, shape=SHAPES[images], classes=classes)

    inputs, heads = example(SHAPES[images]), {"g": ("head.weight", "head.bias")}
    task = Task(ByWidth(plain), (Level("g", gamma),), classes, heads, (inputs, torch.zeros(1)))
    ctx = Context(task, round=0, seed=0)
    return method.network(method.survey(ctx).ranks(gamma), ctx)


@pytest.mark.parametrize(
    ("model", "classes", "images", "printed"),
    [
        (
            "resnet18",
            10,
            "cifar",
            {
                1: ("11.17M", "557.22M"),
                1 / 2: ("4.16M", "261.52M"),
                1 / 4: ("2.21M", "173.44M"),
                1 / 8: ("1.24M", "129.40M"),
            },
        ),
        (
            "resnet34",
            100,
            "cifar",
            # The paper cuts 3,277,220 off to 3.27M; at 1/12 it counts parameters with a rank of 43 in layer4 (512/12 is
            # 42.7) but MACs with one of 42: they would be 557.90M.
            {
                1: ("21.33M", "1162.47M"),
                1 / 2: ("8.40M", "747.24M"),
                1 / 4: ("4.99M", "633.99M"),
                1 / 8: ("3.28M", "577.37M"),
                1 / 12: ("2.71M", "558.20M"),
            },
        ),
        (
            "resnet34",
            200,
            "tiny-imagenet",
            {
                1: ("21.38M", "4649.78M"),
                1 / 2: ("8.45M", "2988.84M"),
                1 / 4: ("5.04M", "2535.85M"),
                1 / 8: ("3.33M", "2309.36M"),
            },
        ),
    ],
)
def test_rows_of_networks_in_factors(
    model: str, classes: int, images: str, printed: dict[float, tuple[str, str]]
) -> None:
    nets = [in_factors(model, classes, images, gamma) for gamma in printed]
    found = [(millions(parameters(net)), millions(fedhm_macs(net, two(SHAPES[images])) // 2)) for net in nets]
    assert found == list(printed.values())


def test_exact_numbers_behind_the_rows_in_factors() -> None:
    nets = [in_factors("resnet18", 10, "cifar", gamma) for gamma in (1, 1 / 2, 1 / 4, 1 / 8)]
    assert [parameters(net) for net in nets] == [11_173_962, 4_157_514, 2_209_866, 1_236_042]
    macs = [fedhm_macs(net, two((3, 32, 32))) // 2 for net in nets]
    assert macs == [557_216_768, 261_518_336, 173_437_952, 129_397_760]
    nets = [in_factors("resnet34", 100, "cifar", gamma) for gamma in (1, 1 / 2, 1 / 4, 1 / 8, 1 / 12)]
    assert [parameters(net) for net in nets] == [21_328_292, 8_401_316, 4_985_252, 3_277_220, 2_707_748]


def test_the_command_says_the_same_of_what_clients_receive_train_and_send() -> None:
    rows = costs(find_model("resnet18"), {"g1": 1.0, "g4": 1 / 8}, torch.zeros(1, 3, 32, 32), "fedhm", measure=False)
    assert [(row["parameters"], row["paper_macs"]) for row in rows] == [
        (11_173_962, 557_216_768),
        (1_236_042, 129_397_760),
    ]
    for row in rows:
        assert row["bytes_down"] == row["bytes_up"] == 4 * row["parameters"]


@pytest.mark.parametrize(("model", "classes", "rho"), [("resnet18", 10, 3), ("resnet34", 100, 15)])
def test_rho_as_a_number_of_layers_is_the_same_network(model: str, classes: int, rho: int) -> None:
    # The journal's rho = 2 for ResNet-18 leaves out the stem; its own table B.8 has three whole layers.
    by_number, by_name = (in_factors(model, classes, "cifar", 1 / 4, FedHM(rho=how)) for how in (rho, None))
    assert shapes_of(by_number.state_dict()) == shapes_of(by_name.state_dict())


def test_all_layers_in_factors_as_in_figure_7() -> None:
    # "we remove the hybrid network structure and directly decompose all the convolution layers"; counted by hand:
    # the stem's rank is 8, 3 * 8 * (3 + 64) scalars; each of the two that were whole in layer1 has 3 * 8 * 128.
    hybrid, all_of_it = (
        parameters(in_factors("resnet18", 10, "cifar", 1 / 8, method))
        for method in (FedHM(), FedHM(rho=1, factor=("stem.0",)))
    )
    assert hybrid - all_of_it == (1_728 - 3 * 8 * 67) + 2 * (36_864 - 3 * 8 * 128)


def test_a_start_that_is_no_layer_is_refused() -> None:
    with pytest.raises(ModelError, match=r"rho: there is no layer or block .*'layer9'"):
        in_factors("resnet18", 10, "cifar", 1 / 2, FedHM(rho="layer9"))


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
