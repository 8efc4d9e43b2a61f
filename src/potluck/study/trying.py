"""A loss and metrics of the user's own, tried on a few real examples before anything is trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from potluck.core.blame import foreign_failure
from potluck.core.data import Examples, evenly_spaced
from potluck.core.errors import ConfigError, PotluckError
from potluck.core.evaluate import score_of, tally_over
from potluck.core.goals.goal import Goal, scalar
from potluck.core.goals.named import GOALS
from potluck.core.inputs import call
from potluck.core.types import Task

FEW = 2  # examples that a loss is tried on
SOME = 256  # and that metrics are


def try_loss(goal: Goal, net: nn.Module, train: Examples) -> None:
    """Refuse a loss of the user's own that fails, or that nothing can be learned from."""
    if goal.criterion is None and type(goal) in GOALS.values():
        return
    inputs, targets = evenly_spaced(train, FEW).take(torch.arange(min(FEW, len(train))))
    outputs = goal.outputs(call(net.eval(), inputs))
    try:
        found = scalar(goal.loss(outputs, targets))
    except PotluckError:
        raise
    except Exception as error:
        raise ConfigError(f"loss fails: {foreign_failure(error) or f'{type(error).__name__}: {error}'}") from error
    if problem := obstacle(found):
        raise ConfigError(f"loss gives {problem}")


def obstacle(found: Tensor) -> str:
    """What is wrong with the number that a loss gave; empty if nothing is."""
    if not bool(torch.isfinite(found)):
        return f"{float(found.detach()):g} with the network's first weights; nothing can be learned from that"
    if not found.requires_grad:
        return "a number that has no gradient; compute it from the outputs without detach(), item() or NumPy"
    return ""


def try_metrics(task: Task, net: nn.Module, test: Examples) -> None:
    """Refuse a metric that fails, and a loss or goal of the user's that cannot score.

    Some need more examples than a few, as one of each class: before a metric is refused, it is shown all of them.
    """
    if not task.measures and task.goal.criterion is None and type(task.goal) in GOALS.values():
        return
    for examples in (evenly_spaced(test, SOME), test):
        try:
            everything = torch.arange(len(examples))
            score_of(tally_over(net, examples, everything, task, None, SOME), task)
            return
        except ConfigError:
            if examples is test:
                raise
