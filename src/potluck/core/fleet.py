"""Who exists and what each can carry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from torch import Tensor

from potluck.core.data import Holder
from potluck.core.types import Client, Level


class Assignment(Protocol):
    """How levels are given to clients: to the whole fleet, or anew to the cohort of every round."""

    per_cohort: ClassVar[bool]

    def __call__(self, clients: int, levels: tuple[Level, ...], round: int, seed: int) -> Tensor:
        """The index of each of these clients' level in this round, as whole numbers of any type."""


@dataclass(frozen=True)
class Fleet:
    """The clients of a federation. Nothing is stored for a client that has never been asked for."""

    levels: tuple[Level, ...]
    assignment: Assignment
    holder: Holder
    seed: int
    labels: dict[int, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.holder)

    def deal(self, clients: int, round: int) -> Tensor:
        """The index of each client's level in this round."""
        return self.assignment(clients, self.levels, round, self.seed)

    def client(self, id: int, level: Level, turn: int | None = None) -> Client:
        """What client `id`, now of this level, tells the server of itself."""
        if id not in self.labels:
            self.labels[id] = self.holder.labels(id)
        return Client(id, level, self.holder.size(id), self.labels[id], turn)
