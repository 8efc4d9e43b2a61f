"""A network scored on a whole set of examples at once, as the workers' pieces must add up to."""

from __future__ import annotations

import torch
from torch import nn

from potluck.core.data import Examples
from potluck.core.evaluate import LocalTest, score_of, tally_over
from potluck.core.goals.goal import Goal, Score
from potluck.core.goals.named import goal_named
from potluck.core.measures import Measure
from potluck.core.networks import ByWidth
from potluck.core.types import Level, Task


def evaluate(
    net: nn.Module,
    examples: Examples,
    goal: Goal | str = "classes",
    local: LocalTest | None = None,
    batch_size: int = 100,
    measures: dict[str, Measure] | None = None,
) -> Score:
    """Score a network in evaluation mode on all examples."""
    aim = goal_named(goal) if isinstance(goal, str) else goal
    example = examples.take(torch.tensor([0]))
    task = Task(ByWidth(lambda ratio: net), (Level("all", 1.0),), 0, {}, example, goal=aim, measures=measures or {})
    return score_of(tally_over(net, examples, torch.arange(len(examples)), task, local, batch_size), task)
