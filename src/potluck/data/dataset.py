"""A data set ready for a federation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from potluck.core.data import Examples
from potluck.core.types import Goal


@dataclass(frozen=True)
class Dataset:
    """What clients may hold, what models are scored on, and how many classes there are."""

    train: Examples
    test: Examples
    classes: int
    goal: Goal = "classes"
    owners: Tensor | None = None  # for data that came from people: who each training example belongs to
