"""Goals by the names that configs and `potluck.run(task=…)` use."""

from __future__ import annotations

from potluck.core.errors import ConfigError
from potluck.core.goals.classes import Classes, MaskedTokens, NextToken, Pixels
from potluck.core.goals.goal import Goal
from potluck.core.goals.numbers import Binary, MultiLabel, Regression
from potluck.core.plug import unknown

GOALS: dict[str, type[Goal]] = {
    kind.name: kind for kind in (Classes, Binary, MultiLabel, Regression, NextToken, MaskedTokens, Pixels)
}


def goal_named(name: str) -> Goal:
    """The goal of this name.

    >>> goal_named("regression").metrics
    ('mae', 'r2')
    """
    if name not in GOALS:
        raise ConfigError(unknown("task", name, GOALS))
    return GOALS[name]()
