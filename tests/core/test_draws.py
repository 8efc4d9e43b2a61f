"""Who is drawn, and of which level, by the plain formulas: what saves memory must not change a documented run."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from potluck.core.data import Arrays, Holdings, Pool
from potluck.core.fleet import Assignment, Fleet
from potluck.core.method import Method
from potluck.core.networks import ByWidth
from potluck.core.random import stream
from potluck.core.server import cohort_size, draw_cohort
from potluck.core.types import Context, Level, Task
from potluck.data.assignment import Blocks, Dynamic, DynamicAll, Fixed, redraw_until_all_present
from potluck.data.mix import counts_of, shares_of

LEVELS = (Level("a", 1.0), Level("b", 0.5), Level("c", 0.25))
MACS = {"a": 3, "b": 2, "c": 1}


@dataclass(frozen=True)
class Admitting(Method):
    names: str = "abc"

    def admits(self, level: Level, ctx: Context) -> bool:
        return level.name in self.names


def plain_levels(assignment: Assignment, clients: int, round: int, seed: int) -> Tensor:
    """The levels of so many clients, as whole numbers of the usual type."""
    shares = shares_of(assignment.mix, LEVELS)  # type: ignore[attr-defined]
    if isinstance(assignment, Dynamic):
        return shares.multinomial(clients, replacement=True, generator=stream(seed, "levels", round))
    if isinstance(assignment, DynamicAll):
        return redraw_until_all_present(shares, clients, stream(seed, "levels", round))
    blocks = torch.repeat_interleave(counts_of(shares, clients))
    if isinstance(assignment, Blocks):
        return blocks
    return blocks[torch.randperm(clients, generator=stream(seed, "levels"))]


def plain_cohort(
    method: Admitting, assignment: Assignment, clients: int, cohort: int | float, ctx: Context
) -> set[tuple[int, str]]:
    """The numbers and levels of those who take part."""
    able = torch.tensor([level.name in method.names for level in LEVELS])
    if assignment.per_cohort:
        shuffled = torch.randperm(clients, generator=ctx.rng("cohort"))
        picked = shuffled[: cohort_size(cohort, clients)]
        levels = plain_levels(assignment, len(picked), ctx.round, ctx.seed)
        picked, levels = picked[able[levels]], levels[able[levels]]
    else:
        everyone = plain_levels(assignment, clients, ctx.round, ctx.seed)
        ids = able[everyone].nonzero().flatten()
        picked = ids[torch.randperm(len(ids), generator=ctx.rng("cohort"))[: cohort_size(cohort, len(ids))]]
        levels = everyone[picked]
    return {(id, LEVELS[level].name) for id, level in zip(picked.tolist(), levels.tolist(), strict=True)}


MIXES = st.sampled_from([None, "a2-b8", "a1-b3-c5"])
ASSIGNMENTS = st.one_of(
    *(st.builds(kind, MIXES) for kind in (Fixed, Blocks, Dynamic)),  # type: ignore[arg-type]
    st.builds(DynamicAll, MIXES),
)


@given(
    ASSIGNMENTS,
    st.integers(5, 400),
    st.integers(3, 5) | st.sampled_from([0.7, 1.0]),
    st.sampled_from(["abc", "a", "bc", "c"]),
    st.integers(0, 9),
    st.integers(0, 9),
)
@settings(max_examples=150, deadline=None)
def test_the_draws_are_those_of_the_plain_formulas(
    assignment: Assignment, clients: int, cohort: int | float, names: str, round: int, seed: int
) -> None:
    method = Admitting(names)
    examples = Arrays(torch.zeros(clients, 1), torch.arange(clients) % 3)
    holdings = Holdings(torch.arange(clients), torch.arange(clients + 1))
    fleet = Fleet(LEVELS, assignment, Pool(examples, holdings), seed)
    example = (torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))
    ctx = Context(Task(ByWidth(lambda width: nn.Linear(2, 2)), LEVELS, 2, {}, example), round, seed)
    drawn = draw_cohort(method, fleet, cohort, MACS, ctx)
    assert {(client.id, client.level.name) for client in drawn} == plain_cohort(
        method, assignment, clients, cohort, ctx
    )
    assert len({client.id for client in drawn}) == len(drawn)


@pytest.mark.parametrize("assignment", [Fixed(), Blocks(), Dynamic()], ids=str)
def test_the_levels_of_a_hundred_thousand_clients(assignment: Assignment) -> None:
    for round, seed in ((0, 0), (3, 0), (0, 1)):
        found = assignment(100_000, LEVELS, round, seed)
        assert torch.equal(found.long(), plain_levels(assignment, 100_000, round, seed))
        assert found.element_size() <= 2


@pytest.mark.parametrize("clients", [1, 1000, 200_000])
def test_a_shuffle_in_small_numbers_is_the_same_shuffle(clients: int) -> None:
    small = torch.randperm(clients, generator=stream(1), dtype=torch.int32)
    assert torch.equal(small.long(), torch.randperm(clients, generator=stream(1)))


def test_many_levels_have_numbers_of_their_own() -> None:
    many = tuple(Level(str(at), (at + 1) / 300) for at in range(300))
    assert Blocks()(600, many, 0, 0).tolist() == [at // 2 for at in range(600)]
    assert sorted(Fixed()(600, many, 0, 0).tolist()) == [at // 2 for at in range(600)]
