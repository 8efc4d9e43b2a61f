"""Targets that do not fit a task, named by the number that their example has where it came from.

This is asked before examples are divided: whoever holds a part of them numbers it anew.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from potluck.core.data import Arrays, Examples, rows
from potluck.core.goals.goal import Goal
from potluck.data.dataset import fitted
from potluck.data.items.lazy import Items


def require_fitting(examples: Examples, goal: Goal | None, what: str) -> None:
    """Refuse examples with a target that does not fit the goal, if it is known by now."""
    if goal is None or not isinstance(examples, Arrays | Items) or fits(examples, goal):
        return
    if fits(some(examples, 0, 0), goal):  # what is wrong without an example is wrong with none of them
        number = first_unfit(examples, goal)
        fitted(some(examples, number, number + 1), goal, f"{what}, example {number}")
    fitted(examples, goal, what)


def first_unfit(examples: Arrays | Items, goal: Goal) -> int:
    """The first example that does not fit, of examples of which one does not."""
    start, end = 0, len(examples)
    while end - start > 1:
        middle = (start + end) // 2
        if fits(some(examples, start, middle), goal):
            start = middle
        else:
            end = middle
    return start


def fits(examples: Arrays | Items, goal: Goal) -> bool:
    """Whether the targets fit; a goal of the user's may fail in any way."""
    try:
        fitted(examples, goal, "")
    except Exception:
        return False
    return True


def some(examples: Arrays | Items, start: int, end: int) -> Arrays | Items:
    """The same with the targets of some examples alone."""
    index = torch.arange(start, end)
    if isinstance(examples, Arrays):
        return replace(examples, targets=rows(examples.targets, index))
    return replace(examples, known=rows(examples.known, index))
