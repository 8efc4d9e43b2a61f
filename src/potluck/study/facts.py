"""What everybody may know of the data: shapes and types, and how many classes there are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from potluck.core.data import Arrays, Chain, Examples, Part, is_even
from potluck.core.errors import ConfigError, DataError
from potluck.core.goals.classes import Classes
from potluck.core.goals.goal import Goal
from potluck.core.goals.named import GOALS, goal_named
from potluck.core.inputs import mapped
from potluck.core.ranges import MOST
from potluck.core.types import Batch
from potluck.data.items.lazy import Items
from potluck.study.goals import goal_options, with_options
from potluck.study.schema import Table, shown

MOST_NUMBERS = 1 << 26  # in an example that a file describes: 4096 x 4096 pixels of three colours have fewer


@dataclass(frozen=True)
class Facts:
    """What everybody may know of the data."""

    classes: int  # 0 if they are not divided into classes
    goal: Goal
    example: Batch  # made up: shapes and types alone
    even: bool = True  # whether all examples are of one shape

    def table(self) -> Table:
        """The facts as settings."""
        inputs, targets = (described(tree) for tree in self.example)
        gaps = {"gaps": True} if getattr(self.goal, "gaps", False) else {}
        options = {"options": found} if (found := goal_options(self.goal)) else {}
        return {
            "classes": self.classes,
            "goal": self.goal.name,
            **gaps,
            **options,
            "inputs": inputs,
            "targets": targets,
        }

    @classmethod
    def of_table(cls, table: Table, own: Goal | None = None) -> Facts:
        """The facts that a table tells; of a goal of the user's own it has only how it is set."""
        try:
            example = (made_up(table["inputs"]), made_up(table["targets"]))
            classes, goal = table["classes"], table["goal"]
            if type(classes) is not int or not 0 <= classes <= MOST or (own is None and goal not in GOALS):
                raise ValueError(f"{shown(classes)} classes and the goal {shown(goal)} make no sense")
            if own is not None:
                return cls(classes, with_options(own, table.get("options", {})), example)
            return cls(classes, with_gaps(goal_named(goal), table.get("gaps") is True), example)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ConfigError(f"[recipe] does not tell what the data are like: {error!r}") from error


def with_gaps(goal: Goal, gaps: bool) -> Goal:
    """The goal for targets of which some do not count."""
    return replace(goal, gaps=True) if gaps and isinstance(goal, Classes) else goal


def described(tree: Any) -> Any:
    """The type and shape of one example, or of each thing it has.

    >>> described(torch.zeros(1, 3, 32, 32)), described({"ids": torch.zeros(1, 8, dtype=torch.long)})
    ('float32:3x32x32', {'ids': 'int64:8'})
    """
    if isinstance(tree, Mapping):
        return {str(name): described(value) for name, value in tree.items()}
    if isinstance(tree, tuple | list):
        return [described(value) for value in tree]
    return f"{str(tree.dtype).removeprefix('torch.')}:{'x'.join(map(str, tree.shape[1:]))}"


def made_up(told: Any) -> Any:
    """A batch of one as it was described.

    >>> made_up("float32:3x32x32").shape
    torch.Size([1, 3, 32, 32])
    """
    if (numbers := numbers_in(told)) > MOST_NUMBERS:
        raise ValueError(f"an example of {numbers:,} numbers has more than {MOST_NUMBERS:,}")
    return zeros_of(told)


def numbers_in(told: Any) -> int:
    """How many numbers a described example has, of all that is in it."""
    if isinstance(told, Mapping | list):
        return sum(map(numbers_in, told.values() if isinstance(told, Mapping) else told))
    return abs(math.prod(shape_in(told)))


def zeros_of(told: Any) -> Any:
    """Zeros in the place of what was described."""
    if isinstance(told, Mapping):
        return {name: zeros_of(value) for name, value in told.items()}
    if isinstance(told, list):
        return tuple(zeros_of(value) for value in told)
    return torch.zeros(1, *shape_in(told), dtype=getattr(torch, told.partition(":")[0]))


def shape_in(told: str) -> list[int]:
    """The sizes in a description such as "float32:3x32x32"."""
    return [int(size) for size in told.partition(":")[2].split("x") if size]


def example_of(examples: Examples) -> Batch:
    """A batch of one like these examples, with nothing of their content."""
    if isinstance(examples, Part):
        return example_of(examples.whole)
    if isinstance(examples, Chain):
        return example_of(examples.parts[0][0])
    if isinstance(examples, Items):
        return examples.made_up
    if not isinstance(examples, Arrays):
        return mapped(torch.zeros_like, examples.take(torch.tensor([0])))  # type: ignore[no-any-return]
    inputs, targets = unfilled(examples.inputs), unfilled(examples.targets)
    prepared = inputs if examples.prepare is None else examples.prepare(inputs)
    return mapped(torch.zeros_like, prepared), targets


def unfilled(columns: Any) -> Any:
    """A batch of one with zeros in the place of what columns hold; a list is a tuple, as when it is read again."""
    if isinstance(columns, Mapping):
        return {name: unfilled(column) for name, column in columns.items()}
    if isinstance(columns, tuple | list):
        return tuple(unfilled(column) for column in columns)
    return columns.new_zeros(1, *columns.shape[1:]) if isinstance(columns, Tensor) else columns.example()


def require_alike(kind: str, examples: Examples, facts: Facts) -> None:
    """Refuse proxy or test examples that the networks could not take."""
    if not len(examples):
        return
    found = zip(("examples", "labels"), example_of(examples), facts.example, strict=True)
    for what, own, wanted in found:
        if not alike(own, wanted, is_even(examples) and facts.even):
            raise DataError(
                f"the {kind} {what} are {told(own)}, but the clients' are {told(wanted)}: they should be alike"
            )


def alike(one: Any, other: Any, even: bool) -> bool:
    """Whether networks can take both of two batches of one; where examples are uneven, their lengths may differ."""
    if even:
        return bool(described(one) == described(other))
    return bool(described(mapped(without_length, one)) == described(mapped(without_length, other)))


def without_length(tensor: Tensor) -> Tensor:
    """A made-up sequence of no positions."""
    return tensor[:, :0] if tensor.dim() > 1 else tensor


def told(tree: Any) -> str:
    """A description for people."""
    found = described(tree)
    return found.removesuffix(":") if isinstance(found, str) else str(found)
