"""The papers' narrow networks from both sources of a plan: a function of the width, and the full network alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import pytest
import torch
from counting import parameters
from torch import Tensor, nn

from potluck.core.threads import one_thread
from potluck.models.catalogue import find_model, input_for
from potluck.parts.cut.channels import Rounding
from potluck.parts.shrink.shrinkable import Shrinkable
from potluck.parts.width.between import counts_between


@dataclass(frozen=True)
class Table:
    """A network, what its author keeps whole, and its parameters at each width."""

    model: str
    sizes: dict[float, int]
    options: dict[str, object] = field(default_factory=dict)
    rounding: Rounding = "ceil"
    keep: tuple[str, ...] = ()

    def build(self, width: float) -> nn.Module:
        return find_model(self.model)(width, **self.options)

    @property
    def example(self) -> tuple[Tensor, ...]:
        shape = input_for(self.model)
        return (torch.zeros(1, *shape, dtype=torch.long if len(shape) == 1 else torch.float),)

    @cached_property
    def shrink(self) -> Shrinkable:
        return Shrinkable(self.build(1.0), self.example, self.keep, self.rounding)


def heterofl(*sizes: int) -> dict[float, int]:
    """Levels a to e."""
    return dict(zip((1, 1 / 2, 1 / 4, 1 / 8, 1 / 16), sizes, strict=True))


TABLES = {
    "HeteroFL CNN": Table("heterofl-cnn", heterofl(1_556_874, 391_370, 98_922, 25_274, 6_594)),
    "HeteroFL PreResNet as measured": Table("preresnet18", heterofl(9_622_090, 2_408_746, 603_802, 151_762, 38_350)),
    "HeteroFL PreResNet as named": Table(
        "preresnet18", heterofl(11_172_170, 2_796_714, 701_018, 176_178, 44_510), {"blocks": (2, 2, 2, 2)}
    ),
    "HeteroFL transformer": Table(
        "transformer", heterofl(19_263_999, 9_107_967, 4_435_455, 2_200_575, 1_108_479), {"classes": 33_279}
    ),
    "FedHM ResNet-18": Table(
        "resnet18", {1: 11_173_962, 0.64: 4_589_591, 0.5: 2_797_610, 0.35: 1_373_160}, rounding="round"
    ),
    "FedHM ResNet-34": Table(
        "resnet34",
        {1: 21_328_292, 0.64: 8_769_303, 0.5: 5_349_636, 0.4: 3_423_974},
        {"classes": 100},
        rounding="round",
    ),
    "FLANC ResNet-18": Table(
        "resnet18", {0.25: 701_466, 0.5: 2_797_610, 0.75: 6_288_442, 1: 11_173_962}, rounding="round"
    ),
    # The paper's p-width column, whose stem has 64 channels at every width.
    "FLANC CNN": Table(
        "flanc-cnn",
        {0.25: 43_978, 0.5: 105_738, 0.75: 185_930, 1: 284_554},
        rounding="round",
        keep=("stem",),
    ),
}
ROWS = [(name, width) for name, table in TABLES.items() for width in table.sizes]
IDS = [f"{name} {width:g}" for name, width in ROWS]


@pytest.fixture(scope="module", autouse=True)
def on_one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.mark.parametrize(("name", "width"), ROWS, ids=IDS)
def test_both_sources_give_the_papers_network(name: str, width: float) -> None:
    table = TABLES[name]
    written, shrunk = table.build(width), table.shrink(width)
    assert parameters(written) == parameters(shrunk) == table.sizes[width]
    shapes = {key: tensor.shape for key, tensor in written.state_dict().items()}
    assert {key: tensor.shape for key, tensor in shrunk.state_dict().items()} == shapes


@pytest.mark.parametrize(("name", "width"), ROWS, ids=IDS)
def test_both_plans_agree_index_by_index(name: str, width: float) -> None:
    table = TABLES[name]
    channels, counts = counts_between(table.shrink.net, table.build(width), table.example)
    assert any(reason for dims in channels.whole.values() for reason in dims)  # found by running, not told by sizes
    from_function, from_network = channels.plan(counts), table.shrink.plan(width)
    assert dict(from_function.entries).keys() == dict(from_network.entries).keys()
    for tensor, cut in from_network.entries:
        assert from_function[tensor] == cut, tensor
