"""A data set ready for a federation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from potluck.core.data import Arrays, Chain, Examples, Part, evenly_spaced, is_even
from potluck.core.errors import DataError
from potluck.core.goals.blamed import blamed_on
from potluck.core.goals.classes import IGNORED, Classes
from potluck.core.goals.goal import Goal
from potluck.core.goals.named import goal_named
from potluck.core.inputs import mapped
from potluck.data.columns.ragged import Ragged
from potluck.data.items.lazy import Items
from potluck.data.owners import Owners, owner_numbers, require_column

PIECE = 256  # examples of unequal lengths whose targets are looked at together


@dataclass(frozen=True)
class Dataset:
    """What clients may hold, what models are scored on, and how many classes there are."""

    train: Examples
    test: Examples
    classes: int = 0  # to choose among; 0 if the goal is another
    goal: Goal | str = "classes"
    owners: Owners | None = None  # who each training example came from, by number or by name
    test_owners: Owners | None = None  # who each test example came from, called as in `owners`

    @property
    def aim(self) -> Goal:
        """The goal, whether it was named or given."""
        return goal_named(self.goal) if isinstance(self.goal, str) else self.goal

    def aimed_at(self, goal: Goal) -> Dataset:
        """The same for another goal, its targets in the type that the goal needs."""
        train, test = (fitted(each, goal, what) for each, what in ((self.train, "data"), (self.test, "test")))
        return of_goal(replace(self, train=train, test=test), goal, self.classes if goal.softmax else 0)

    def owner_numbers(self) -> Tensor | None:
        """Who each training example came from, as a number; names are numbered in the order in which they appear."""
        if self.test_owners is not None:
            require_column(self.test_owners, len(self.test), "test_owners", "test examples")
        if self.owners is None:
            return None
        return owner_numbers(self.owners, len(self.train), "owners", "training examples")

    def scored_on(self, most: int) -> Dataset:
        """The same with at most so many test examples."""
        test, owners = evenly_spaced(self.test, most), self.test_owners
        if owners is not None and test is not self.test and isinstance(test, Part):
            column = owners.tolist() if isinstance(owners, Tensor) else list(owners)
            owners = [column[at] for at in test.chosen.tolist()]
        return replace(self, test=test, test_owners=owners)


def fitted(examples: Examples, goal: Goal, what: str) -> Examples:
    """Examples whose targets have the type that a goal needs; what a source makes on demand is of its type already."""
    if isinstance(examples, Part):
        return replace(examples, whole=fitted(examples.whole, goal, what))
    if isinstance(examples, Chain):
        return Chain(tuple((fitted(source, goal, what), chosen) for source, chosen in examples.parts))
    if not isinstance(examples, Arrays | Items):
        return examples
    given = examples.targets if isinstance(examples, Arrays) else examples.known
    if isinstance(given, tuple | dict) and goal.name != "own":
        raise DataError(
            f"{what}: each example has several targets, but the task '{goal.name}' has one; give a loss of your own "
            "with loss=, which is handed all of them"
        )
    convert = partial(goal.targets, what=what)
    with blamed_on(goal, f"on the targets of {what}"):
        known = mapped(lambda column: converted(column, convert), given)
    if goal.target_per and isinstance(known, Tensor) and known.dim() < 2:
        raise DataError(
            f"{what}: each example has one target, but the task '{goal.name}' needs one for each {goal.target_per}; if "
            "an example has one class, let the task be 'classes'"
        )
    if isinstance(examples, Arrays):
        return replace(examples, targets=known)
    inputs, targets = examples.made_up
    return replace(examples, known=known, convert=convert, made_up=(inputs, mapped(convert, targets)))


def converted(column: Tensor | Ragged, convert: Callable[[Tensor], Tensor]) -> Tensor | Ragged:
    """A column of targets in another type."""
    return column.converted(convert) if isinstance(column, Ragged) else convert(column)


def of_goal(data: Dataset, goal: Goal, classes: int = 0) -> Dataset:
    """A data set for a goal, with as many classes as occur in it, or as are known to be."""
    if not goal.softmax:
        return replace(data, goal=goal, classes=0)
    known, gaps = classes, False
    for examples in (data.train, data.test):
        shapes = set()
        for labels in label_pieces(examples):
            known = max(known, goal.classes_in(labels) if labels.numel() else 0)
            gaps = gaps or bool((labels == IGNORED).any())
            shapes.add(labels.shape[1:])
        gaps = gaps or len(shapes) > 1  # a batch of both lengths is filled up
    if known < 1:
        raise DataError("data: every label is -100, which stands for what does not count; number the classes from 0")
    if isinstance(goal, Classes) and gaps and not goal.gaps:
        goal = replace(goal, gaps=True)
    return replace(data, goal=goal, classes=known)


def label_pieces(examples: Examples) -> Iterator[Tensor]:
    """The targets of all examples: at once if they are of one shape, else in pieces, each filled up to its longest.

    Filled up to the longest of all, they could take more memory than there is.
    """
    for index in torch.arange(len(examples)).split(max(1, len(examples)) if is_even(examples) else PIECE):
        yield examples.labels(index)


def all_labels(examples: Examples) -> Tensor:
    """The targets of all examples, filled up to the longest."""
    return examples.labels(torch.arange(len(examples)))


def has_one_label(examples: Examples) -> bool:
    """Whether an example has one target, not one for each of its positions."""
    return examples.labels(torch.arange(min(1, len(examples)))).dim() == 1


def classes_to_divide_by(examples: Examples) -> Tensor:
    """The target of every example; if they have several, those of the first stand for all: nobody divides by them."""
    if has_one_label(examples):
        return all_labels(examples)
    first = examples.labels(torch.arange(1))
    return first.expand(len(examples), *first.shape[1:])
