"""Scores of given outputs, put together from any pieces in any grouping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from potluck.core.data import Arrays
from potluck.core.evaluate import added, score_of, tally_over
from potluck.core.goals.goal import Goal, Score
from potluck.core.networks import ByWidth
from potluck.core.types import Level, Task, Tensors
from potluck.study.metrics import measures_of

ECHO = nn.Identity()  # the inputs are the outputs
Cuts = list[tuple[int, int]]


def task_of(goal: Goal, examples: Arrays, metrics: Mapping[str, Any] | None, classes: int = 0) -> Task:
    """A task whose models are scored by these metrics."""
    example = examples.take(torch.tensor([0]))
    measures = measures_of(metrics, goal, classes, example, ECHO)
    return Task(ByWidth(lambda ratio: ECHO), (Level("a", 1.0),), classes, {}, example, goal=goal, measures=measures)


def at_once(task: Task, examples: Arrays) -> Score:
    """The score of all examples as one batch."""
    count = len(examples)
    return score_of(tally_over(ECHO, examples, torch.arange(count), task, None, count), task)


def in_pieces(task: Task, examples: Arrays, cuts: Cuts) -> Score:
    """The score of pieces, each scored in batches of its own size, and joined with a neighbour until one is left."""
    ends = sorted({1 + place % len(examples) for place, _ in cuts} | {len(examples)})
    sizes = [2 + number % 7 for _, number in cuts]
    tallies: list[Tensors] = []
    for at, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        tallies.append(tally_over(ECHO, examples, torch.arange(start, end), task, None, sizes[at % len(sizes)]))
    for _, number in cuts * len(tallies):
        if len(tallies) > 1:
            place = number % (len(tallies) - 1)
            tallies[place : place + 2] = [added(tallies[place], tallies[place + 1], task)]
    assert len(tallies) == 1
    return score_of(tallies[0], task)


def divisions() -> st.SearchStrategy[Cuts]:
    """Where pieces end, in which batches they are scored, and in which order they are joined."""
    return st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), min_size=1, max_size=4)


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def whole(most: int, *shape: int, seed: int) -> Tensor:
    """Whole numbers below some number."""
    return torch.randint(most, shape, generator=torch.Generator().manual_seed(seed))
