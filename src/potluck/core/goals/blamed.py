"""Code of the user's in goals: where it fails, an error says so; a goal of ours that fails is a fault of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from potluck.core.blame import foreign_failure
from potluck.core.errors import ConfigError, PotluckError
from potluck.core.goals.goal import Goal
from potluck.core.goals.named import GOALS
from potluck.core.goals.own import Own


@contextmanager
def blamed_on(goal: Goal, where: str, with_loss: bool = False) -> Iterator[None]:
    """Say that a goal of the user's fails inside or, if it is asked for, a loss of the user's."""
    try:
        yield
    except PotluckError:
        raise
    except Exception as error:
        whose = "" if type(goal) in (*GOALS.values(), Own) else f"the task '{goal.name}'"
        if goal.criterion is not None and with_loss:
            whose = "loss"
        if not whose:
            raise
        why = foreign_failure(error) or f"{type(error).__name__}: {error}"
        raise ConfigError(f"{whose} fails {where}: {why}") from error
