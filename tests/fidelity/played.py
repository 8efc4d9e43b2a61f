"""Rounds of a small federation in float64, with all that somebody else needs to play them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from by_hand import Recipe as SlowRecipe
from by_hand import Weights, furthest
from torch import Tensor, nn

from potluck.core.client import Site
from potluck.core.clock import Clock
from potluck.core.data import Arrays, Holdings, Pool
from potluck.core.desk import Desk
from potluck.core.goals.classes import Classes
from potluck.core.method import Method
from potluck.core.networks import ByWidth
from potluck.core.recipe import Recipe
from potluck.core.server import Server, first_state
from potluck.core.store import Memory
from potluck.core.types import Batch, Client, Context, Job, Level, Phase, Task, Tensors, Train
from potluck.engines.serial import Serial

SEED = 3
CLASSES = 4
IMAGE = (1, 5, 5)
SIZES = (9, 7, 12, 8, 11)
LACKING = (3, 0, 1, 3, 2)  # the class that each client does not have
# Who takes part in each round, by number and level. In the last one nobody has the largest.
COHORTS = (
    ((0, 0), (1, 1), (2, 2), (3, 1)),
    ((4, 2), (1, 0), (2, 1), (0, 2)),
    ((0, 1), (3, 2), (4, 1)),
)


@dataclass(frozen=True)
class Federation:
    """Clients with examples of their own, and what they train."""

    network: Callable[[float], nn.Module]  # of any type; it is trained in float64
    levels: tuple[Level, ...]
    examples: Arrays
    held: list[Tensor]
    recipe: SlowRecipe
    classes: int = CLASSES
    embeddings: Mapping[str, int] = field(default_factory=dict)
    epochs: int = 2
    batch_size: int = 4

    def task(self, rounds: int) -> Task:
        """What is learned, as Potluck has it."""
        example = tuple(torch.zeros_like(part) for part in self.examples.take(torch.tensor([0])))
        train = Train(
            lr=self.recipe.lr,
            momentum=self.recipe.momentum,
            weight_decay=self.recipe.weight_decay,
            clip=self.recipe.clip,
            epochs=self.epochs,
            batch_size=self.batch_size,
            schedule="multistep",
            milestones=self.recipe.milestones,
        )
        heads = {level.name: ("head.weight", "head.bias") for level in self.levels}
        networks = ByWidth(lambda width: self.network(width).double())
        return Task(
            networks,
            self.levels,
            self.classes,
            heads,
            example,
            train,
            rounds,
            embeddings=self.embeddings,
            clients=len(self.held),
        )


@dataclass(frozen=True)
class Played:
    """A round as Potluck played it."""

    ctx: Context
    cohort: list[Client]
    batches: dict[int, list[Batch]]  # what each client trained on
    before: Tensors
    after: Tensors


def play(method: Method, federation: Federation, cohorts: Sequence[Sequence[tuple[int, int]]]) -> Iterator[Played]:
    """Play these cohorts' rounds, one after the other."""
    pool = Pool(federation.examples, Holdings.of_lists(federation.held))
    site = Site(Recipe(method, federation.task(len(cohorts)), SEED), pool)
    engine, clock = Serial(), Clock()
    engine.open(site, Desk(site.recipe, federation.examples), Memory(), clock)
    server = Server(site.recipe, engine, clock=clock)
    state, turn = first_state(method, site.context(0)), 0
    for round, members in enumerate(cohorts):
        ctx, cohort = site.context(round), []
        for id, level in members:
            cohort.append(Client(id, federation.levels[level], pool.size(id), pool.labels(id), turn))
            turn += 1
        seen = {one.id: list(site.batches(Job(one, round, {}), 0, Phase(Classes()))) for one in cohort}
        after, ledger = server.play(state, cohort, ctx)
        assert not ledger.failures
        yield Played(ctx, cohort, seen, state, after)
        state = after


def compared(
    rounds: Iterable[Played],
    next_state: Callable[[Weights, Played], Weights],
    within: float = 1e-12,
    learned: Callable[[Tensors], Weights] = dict,
) -> list[Weights]:
    """The states after every round of a slow version, which goes on from its own; all are found to be Potluck's."""
    states: list[Weights] = []
    for played in rounds:
        states.append(next_state(states[-1] if states else learned(played.before), played))
        assert furthest(learned(played.after), states[-1]) < within
        assert furthest(learned(played.after), learned(played.before)) > 0.01  # somebody learned something
    assert states
    return states


def pictures() -> tuple[Arrays, list[Tensor]]:
    """Small noisy pictures of four classes, and who holds which: unequal clients that lack a class each."""
    rng = torch.Generator().manual_seed(0)
    targets = [label for size, lack in zip(SIZES, LACKING, strict=True) for label in labels_without(size, lack)]
    kinds = torch.randn(CLASSES, *IMAGE, generator=rng, dtype=torch.float64)
    noise = torch.randn(len(targets), *IMAGE, generator=rng, dtype=torch.float64)
    held = list(torch.arange(len(targets)).split(list(SIZES)))
    return Arrays(kinds[torch.tensor(targets)] + noise, torch.tensor(targets)), held


def labels_without(size: int, lack: int) -> list[int]:
    """So many labels in turn, one of which is left out."""
    there = [label for label in range(CLASSES) if label != lack]
    return [there[number % len(there)] for number in range(size)]
