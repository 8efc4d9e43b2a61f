"""A network scored on a whole set of examples at once, as the workers' pieces must add up to."""

from __future__ import annotations

import torch
from torch import nn

from potluck.core.data import Examples
from potluck.core.evaluate import LocalTest, Score, means_of, sums_over
from potluck.core.types import Goal


def evaluate(
    net: nn.Module, examples: Examples, goal: Goal = "classes", local: LocalTest | None = None, batch_size: int = 100
) -> Score:
    """Score a network in evaluation mode on all examples."""
    return means_of(sums_over(net, examples, torch.arange(len(examples)), goal, local, batch_size), goal)
