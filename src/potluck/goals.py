"""What can be learned: the goals that `potluck.run(task=…)` takes, and the class to derive one's own from."""

from potluck.core.goals.classes import Classes, MaskedTokens, NextToken, Pixels
from potluck.core.goals.goal import Goal
from potluck.core.goals.numbers import Binary, MultiLabel, Regression
from potluck.core.goals.own import Own

__all__ = ["Binary", "Classes", "Goal", "MaskedTokens", "MultiLabel", "NextToken", "Own", "Pixels", "Regression"]
