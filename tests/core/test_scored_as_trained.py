"""Models are scored in the layout of their training, in batches whose outputs fit the caches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from potluck.core.data import Arrays
from potluck.core.evaluate import MOST_BETWEEN, MOST_EXAMPLES, batch_size, score_of, tally_as_trained, widest
from potluck.core.memo import Memo
from potluck.core.networks import ByWidth
from potluck.core.recipe import Recipe
from potluck.core.types import Level, Task
from potluck.methods.heterofl import HeteroFL

LEVEL, EXAMPLES = Level("a", 1.0), 30


class Seeing(nn.Module):
    """A convolution and a head, which remembers the batches that it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Linear(8 * 16, 4)
        self.sizes: list[int] = []
        self.last: list[bool] = []

    def forward(self, images: Tensor) -> Tensor:
        self.sizes.append(len(images))
        self.last += [each.is_contiguous(memory_format=torch.channels_last) for each in (images, self.conv.weight)]
        return self.head(self.conv(images).flatten(1))


@pytest.fixture
def net() -> Seeing:
    torch.manual_seed(0)
    return Seeing()


@pytest.fixture
def examples() -> Arrays:
    rng = torch.Generator().manual_seed(1)
    return Arrays(torch.randn(EXAMPLES, 3, 4, 4, generator=rng), torch.arange(EXAMPLES) % 4)


def scored(net: nn.Module, examples: Arrays, way: str) -> tuple[Recipe, dict[str, float]]:
    task = Task(ByWidth(lambda ratio: net), (LEVEL,), 4, {}, examples.take(torch.tensor([0])))
    recipe = Recipe(HeteroFL(), task, 0, {LEVEL.name: way})
    return recipe, score_of(tally_as_trained(net, examples, torch.arange(EXAMPLES), recipe, LEVEL, Memo()), task)


def test_the_layout_is_that_of_training_and_gone_afterwards(net: Seeing, examples: Arrays) -> None:
    scored(net, examples, "channels-last")
    assert all(net.last[-2:])
    assert net.conv.weight.is_contiguous()
    scored(net, examples, "plain")
    assert not any(net.last[-2:])


def test_scores_do_not_depend_on_the_way(net: Seeing, examples: Arrays) -> None:
    plain, last = (scored(net, examples, way)[1] for way in ("plain", "channels-last"))
    assert plain["accuracy"] == last["accuracy"]
    assert plain["loss"] == pytest.approx(last["loss"], rel=1e-5)


def test_batches_are_as_large_as_the_widest_output_allows(
    net: Seeing, examples: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("potluck.core.evaluate.MOST_BETWEEN", 12 * 8 * 16)
    scored(net, examples, "plain")
    assert net.sizes[-3:] == [12, 12, 6]


def test_the_widest_output_is_that_of_one_example(net: Seeing, examples: Arrays) -> None:
    recipe, _ = scored(net, examples, "plain")
    assert widest(net, recipe.task) == 8 * 16
    assert batch_size(recipe.task, 1) == MOST_EXAMPLES
    assert batch_size(recipe.task, MOST_BETWEEN // 3) == 3
    assert batch_size(recipe.task, 2 * MOST_BETWEEN) == 1
