"""Which client is of which level, in which round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from potluck.core.errors import ConfigError
from potluck.core.fleet import Assignment
from potluck.core.plug import unknown
from potluck.core.random import stream
from potluck.core.types import Level
from potluck.data.mix import Mix, counts_of, shares_of


@dataclass(frozen=True)
class Fixed:
    """Levels in exact proportion, shuffled over the clients once and for all."""

    per_cohort: ClassVar[bool] = False

    mix: Mix = None

    def __call__(self, clients: int, levels: tuple[Level, ...], round: int, seed: int) -> Tensor:
        return shuffled_blocks(level_counts(self.mix, levels, clients), seed)


@dataclass(frozen=True)
class Blocks:
    """Levels in exact proportion, in blocks by client number: HeteroFL's and FedHM's `fix`.

    Departure: what does not divide evenly goes where `counts_of` says; HeteroFL gives it all to the last level.
    """

    per_cohort: ClassVar[bool] = False

    mix: Mix = None

    def __call__(self, clients: int, levels: tuple[Level, ...], round: int, seed: int) -> Tensor:
        return blocks(level_counts(self.mix, levels, clients))


@dataclass(frozen=True)
class Dynamic:
    """Every client draws its level again in every round, independently: HeteroFL's `dynamic`."""

    per_cohort: ClassVar[bool] = False

    mix: Mix = None

    def __call__(self, clients: int, levels: tuple[Level, ...], round: int, seed: int) -> Tensor:
        shares = shares_of(self.mix, levels)
        drawn = shares.multinomial(clients, replacement=True, generator=stream(seed, "levels", round))
        return drawn.to(LEVEL)


@dataclass(frozen=True)
class DynamicAll:
    """Levels are drawn again in every round until every level of the mix occurs: FLANC's released trainer."""

    per_cohort: ClassVar[bool] = True

    mix: Mix = None

    def __call__(self, clients: int, levels: tuple[Level, ...], round: int, seed: int) -> Tensor:
        return redraw_until_all_present(shares_of(self.mix, levels), clients, stream(seed, "levels", round))


ASSIGNMENTS: dict[str, type[Assignment]] = {
    "fixed": Fixed,
    "blocks": Blocks,
    "dynamic": Dynamic,
    "dynamic-all": DynamicAll,
}

DRAWS = 1000
LEVEL = torch.int16  # of the number of a level, since there may be millions of clients


def assignment_named(name: str) -> type[Assignment]:
    """The assignment that a configuration calls by this name."""
    if name not in ASSIGNMENTS:
        raise ConfigError(unknown("assignment", name, ASSIGNMENTS))
    return ASSIGNMENTS[name]


def level_counts(mix: Mix, levels: tuple[Level, ...], clients: int) -> tuple[int, ...]:
    """How many of the clients are of each level."""
    return tuple(counts_of(shares_of(mix, levels), clients).tolist())


def blocks(counts: tuple[int, ...]) -> Tensor:
    """So many of each level, level after level."""
    return torch.cat([torch.full((count,), level, dtype=LEVEL) for level, count in enumerate(counts)])


@lru_cache(maxsize=1)
def shuffled_blocks(counts: tuple[int, ...], seed: int) -> Tensor:
    """So many of each level, shuffled; kept, since it is asked for in every round."""
    dealt = torch.randperm(sum(counts), generator=stream(seed, "levels"), dtype=torch.int32)
    return blocks(counts).index_select(0, dealt)


def redraw_until_all_present(shares: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """`count` independent draws of a level, given that every level with a share occurs.

    The whole is drawn again until it does, which is exact; where that is too rare (a thousand
    draws did not do), one of each level is put at random places and the others are drawn freely.
    """
    needed = shares.nonzero().flatten()
    if count < len(needed):
        raise ConfigError(
            f"the mix has {len(needed)} levels, but {count} clients cannot be of all of them: "
            f"ask for at least {len(needed)} clients or fewer levels"
        )
    for _ in range(DRAWS):
        drawn = shares.multinomial(count, replacement=True, generator=rng)
        if len(torch.unique(drawn)) == len(needed):
            return drawn
    drawn[torch.randperm(count, generator=rng)[: len(needed)]] = needed
    return drawn
