"""A data set ready for a federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.core.data import Examples
from potluck.core.errors import DataError
from potluck.core.types import Goal


@dataclass(frozen=True)
class Dataset:
    """What clients may hold, what models are scored on, and how many classes there are."""

    train: Examples
    test: Examples
    classes: int
    goal: Goal = "classes"
    owners: Tensor | Sequence[str | int] | None = None  # who each training example came from, by number or by name

    def owner_numbers(self) -> Tensor | None:
        """Who each training example came from, as a number; names are numbered in the order in which they appear."""
        if self.owners is None:
            return None
        if len(self.owners) != len(self.train):
            raise DataError(
                f"owners has {len(self.owners)} entries for {len(self.train)} training examples: name one for each"
            )
        if isinstance(self.owners, Tensor):
            return self.owners
        number = {owner: at for at, owner in enumerate(dict.fromkeys(self.owners))}
        return torch.tensor([number[owner] for owner in self.owners])
