"""A level below 1 that would train the whole network is refused, with the reason and a way out."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

from potluck.core.errors import ModelError
from potluck.core.types import Level
from potluck.parts.lowrank.layers import Unrolled
from potluck.parts.lowrank.savings import require_savings, saving_ratio
from potluck.parts.lowrank.survey import GROUPED, Survey, survey

SERVER, PHONE, WATCH = Level("server", 1.0), Level("phone", 0.5), Level("watch", 0.25)
HEAD = ("head.weight", "head.bias")


def square(layers: int) -> Survey:
    """Layers of 16 x 16 between the first and the head."""
    named = {f"l{number}": nn.Linear(16, 16) for number in range(layers)}
    net = nn.Sequential(OrderedDict(first=nn.Linear(4, 16), **named, head=nn.Linear(16, 2)))
    return survey(net, (torch.zeros(1, 4),), HEAD)


@pytest.mark.parametrize("shape", [(16, 16, 1, 1, 1), (12, 40, 1, 1, 1), (64, 16, 3, 3, 1), (16, 4, 3, 3, 4)])
def test_the_saving_ratio_is_the_largest_at_which_factors_are_smaller(shape: tuple[int, ...]) -> None:
    layer = Unrolled(*shape, linear=False)
    rank = round(saving_ratio(layer) * layer.outputs / layer.groups)
    assert layer.size(rank) < layer.size() <= layer.size(rank + 1)


def test_levels_that_save_are_let_through_and_do_save() -> None:
    found = square(1)
    require_savings(found, [SERVER, WATCH])
    (rank,) = found.ranks(WATCH.ratio).values()
    assert found.layers["l0"].size(rank) < found.layers["l0"].size()
    require_savings(square(0), [SERVER])
    with pytest.raises(ModelError):  # it is the ratio of 1 that lets it through
        require_savings(square(0), [Level("server", 0.99)])


def test_a_level_at_which_no_layer_is_smaller_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        require_savings(square(2), [SERVER, PHONE, WATCH])
    assert str(caught.value) == (
        "level 'phone' (ratio 0.5) would train the whole network: factors of such a rank are no smaller than the "
        "layers; choose a ratio of at most 0.437, or share = 'parameters', with which it is a share of the "
        "network's size"
    )
    require_savings(square(2), [SERVER, Level("phone", 0.437), WATCH])
    require_savings(square(2), [SERVER, PHONE, WATCH], by_rank=False)


@pytest.mark.parametrize("by_rank", [True, False])
def test_a_network_without_layers_to_put_into_factors_is_refused(by_rank: bool) -> None:
    with pytest.raises(ModelError) as caught:
        require_savings(square(0), [SERVER, WATCH], by_rank)
    assert str(caught.value) == (
        "level 'watch' (ratio 0.25) would train the whole network: no layer of it can be put into factors (first: it "
        "is the first layer; head: it makes the logits); name layers in factor, or choose another method"
    )


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Survey({}, {}), "(it has no linear layer and no convolution in two dimensions)"),
        (Survey({}, {"tied": "it shares its weight"}), "(tied: it shares its weight); choose another method"),
        (Survey({}, {f"c{n}": GROUPED for n in range(5)}), "(c0, c1, c2 and 2 more: its channels are in groups)"),
        (Survey({"thin": Unrolled(8, 1, 1, 1, 1, True)}, {}), "(thin: factors of any rank would be no smaller)"),
    ],
    ids=["no layers", "nothing that may be named", "many layers", "a layer that no rank makes smaller"],
)
def test_reasons_are_told_once_each(found: Survey, told: str) -> None:
    with pytest.raises(ModelError) as caught:
        require_savings(found, [WATCH])
    assert told in str(caught.value)
