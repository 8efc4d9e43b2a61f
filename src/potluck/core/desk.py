"""The server's own place: what it does itself, on its own machine, with no client's data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from potluck.core.calibration import install
from potluck.core.client import HOST
from potluck.core.data import Examples
from potluck.core.evaluate import LocalTest, tally_as_trained
from potluck.core.memo import Memo
from potluck.core.names import inside
from potluck.core.recipe import Recipe
from potluck.core.types import Level, Tensors

STATE, STATISTICS = "state", "statistics"


@dataclass(frozen=True)
class Desk:
    """What the server has beside its state: the recipe, and the examples that models are scored on."""

    recipe: Recipe
    test: Examples
    local: LocalTest | None = None
    device: str = HOST
    choosing: Tensor | None = None  # which of the examples choose the best round, sorted
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "memo": Memo()}  # another process makes its own

    def examples(self, choosing: bool) -> Tensor:
        """The test examples that choose the best round, or all the others."""
        if self.choosing is None:
            return torch.arange(0 if choosing else len(self.test))
        if choosing:
            return self.choosing
        others = torch.ones(len(self.test), dtype=torch.bool)
        others[self.choosing] = False
        return others.nonzero().flatten()


@dataclass(frozen=True)
class Piece:
    """A piece of the server's own work, one of several that may be done side by side."""

    level: Level
    round: int
    number: int
    count: int  # how many pieces there are
    occasion: int  # pieces of one occasion belong together
    payload: Tensors
    choosing: bool = False  # whether it is of the examples that choose the best round


def whose(piece: Piece) -> str:
    """What a piece is called when it goes wrong."""
    return f"the server's own work for level '{piece.level.name}'"


Chore = Callable[[Desk, Piece], Tensors]
"""What is done with a piece; a module-level function."""


def score_piece(desk: Desk, piece: Piece) -> Tensors:
    """What one piece of the test examples adds to the score of a level's model."""
    net = desk.memo.latest("scored", (piece.level.name, piece.occasion), lambda: scored_model(desk, piece))
    examples, count = desk.examples(piece.choosing), piece.count
    size = len(examples)
    chosen = examples[size * piece.number // count : size * (piece.number + 1) // count]
    return tally_as_trained(net, desk.test, chosen, desk.recipe, piece.level, desk.memo, desk.local)


def scored_model(desk: Desk, piece: Piece) -> nn.Module:
    """The model that a piece is about, where models are scored."""
    statistics = inside(STATISTICS, piece.payload)
    net = ready_model(desk.recipe, inside(STATE, piece.payload), piece.level, piece.round, statistics, desk.memo)
    return net if desk.device == HOST else net.to(desk.device)


def ready_model(recipe: Recipe, state: Tensors, level: Level, round: int, statistics: Tensors, memo: Memo) -> nn.Module:
    """The plain network of a level, with the statistics that clients measured for it."""
    return install(recipe.method.export(state, level, recipe.context(round, memo)), statistics)
