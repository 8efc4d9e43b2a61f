"""A data set ready for a federation."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from potluck.core.data import Examples, Part, evenly_spaced
from potluck.core.types import Goal
from potluck.data.owners import Owners, owner_numbers, require_column


@dataclass(frozen=True)
class Dataset:
    """What clients may hold, what models are scored on, and how many classes there are."""

    train: Examples
    test: Examples
    classes: int
    goal: Goal = "classes"
    owners: Owners | None = None  # who each training example came from, by number or by name
    test_owners: Owners | None = None  # who each test example came from, called as in `owners`

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
