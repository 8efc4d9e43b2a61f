"""What a method may show of itself. A method has these if it has something to show; nothing depends on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from potluck.core.goals.goal import Goal
from potluck.core.method import Method
from potluck.core.panels import Panel
from potluck.core.types import Context, Level, Tensors


@runtime_checkable
class Diagnoses(Protocol):
    """A method that records numbers of its own after every round."""

    def diagnose(self, state: Tensors, ctx: Context, joined: Mapping[str, int]) -> dict[str, Any]:
        """Numbers worth watching; `joined` counts the clients of each level that took part."""


@runtime_checkable
class Explains(Protocol):
    """A method that treats layers differently, and says why."""

    def explain(self, level: Level, ctx: Context) -> dict[str, str]:
        """What becomes of each layer at a level, and why."""


@runtime_checkable
class Draws(Protocol):
    """A method whose state is worth looking at."""

    def panels(self, state: Tensors, ctx: Context) -> Sequence[Panel]:
        """Pictures of the state."""


@runtime_checkable
class Particular(Protocol):
    """A method that needs something of a goal that not every goal has, such as classes."""

    def leaves_out(self, goal: Goal) -> Sequence[str]:
        """What it does without for this goal, a sentence each; a ConfigError if it cannot do without."""


def left_out(method: Method, goal: Goal) -> Sequence[str]:
    """What a method does without for this goal, a sentence each; a ConfigError if it cannot do without."""
    return method.leaves_out(goal) if isinstance(method, Particular) else []
