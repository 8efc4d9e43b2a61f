"""What a process remembers, and what it forgets."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.memo import REMEMBERED, Memo
from potluck.core.networks import ByWidth
from potluck.core.recipe import Recipe
from potluck.core.types import Context, Level, Task
from potluck.methods.heterofl import HeteroFL

LEVEL = Level("all", 1.0)


def context(round: int = 0, seed: int = 0, memo: Memo | None = None) -> Context:
    example = (torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))
    task = Task(ByWidth(lambda width: torch.nn.Linear(2, 2)), (LEVEL,), 2, {}, example)
    return Context(task, round, seed, memo or Memo())


class Counting:
    """Notes how often it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __call__(self, *args: object) -> int:
        self.calls.append(args)
        return len(self.calls)


def test_something_is_made_once_per_function_and_arguments() -> None:
    ctx, one, other = context(), Counting(), Counting()
    assert [ctx.once(one, "a"), ctx.once(one, "a"), ctx.once(one, "b"), ctx.once(one, "a", 1)] == [1, 1, 2, 3]
    assert ctx.once(other, "a") == 1
    assert len(one.calls) == 3


def test_what_is_made_once_is_given_its_arguments_and_the_context_of_round_0() -> None:
    ctx, make = context(round=5, seed=3), Counting()
    ctx.once(make, LEVEL, 7)
    ((level, number, given_context),) = make.calls
    assert (level, number) == (LEVEL, 7)
    assert isinstance(given_context, Context)
    assert (given_context.round, given_context.seed) == (0, 3)
    assert given_context.task is ctx.task
    assert given_context.memo is ctx.memo  # what is made may be made of what was


def test_rounds_share_a_memo_and_contexts_of_their_own_do_not() -> None:
    shared, make = Memo(), Counting()
    assert [context(round, memo=shared).once(make) for round in range(3)] == [1, 1, 1]
    recipe = Recipe(HeteroFL(), context().task, 0)
    assert recipe.context(0, shared).memo is shared
    assert recipe.context(0).memo is not recipe.context(0).memo


def test_settings_are_part_of_the_key() -> None:
    """A method is a frozen dataclass: equal settings are equal keys, others are not."""
    ctx, make = context(), Counting()
    methods = [HeteroFL(), HeteroFL(scaler=False), HeteroFL(), HeteroFL(static_norm=False), HeteroFL(scaler=False)]
    assert [ctx.once(make, method, LEVEL) for method in methods] == [1, 2, 1, 3, 2]
    assert ctx.once(make, HeteroFL(), Level("all", 0.5)) == 4
    assert ctx.once(make, HeteroFL(), Level("another", 1.0)) == 5


@dataclass(frozen=True)
class Own(HeteroFL):
    """The same fields, another class."""


def test_methods_of_two_classes_are_two_keys() -> None:
    ctx, make = context(), Counting()
    assert [ctx.once(make, HeteroFL()), ctx.once(make, Own())] == [1, 2]


def test_an_error_is_not_remembered() -> None:
    ctx, made = context(), list[int]()

    def make(ctx: Context) -> int:
        made.append(0)
        if len(made) == 1:
            raise ValueError("not yet")
        return len(made)

    with pytest.raises(ValueError, match="not yet"):
        ctx.once(make)
    assert ctx.once(make) == 2


def test_nothing_is_a_result_like_any_other() -> None:
    ctx, make = context(), Counting()

    def nothing(ctx: Context) -> None:
        make()

    assert [ctx.once(nothing), ctx.once(nothing)] == [None, None]
    assert len(make.calls) == 1


def test_what_is_made_may_be_made_of_what_the_same_function_made() -> None:
    ctx = context()

    def factorial(number: int, ctx: Context) -> int:
        return number * ctx.once(factorial, number - 1) if number else 1

    assert ctx.once(factorial, 20) == 2432902008176640000
    assert ctx.once(factorial, 2 * REMEMBERED) % 10 == 0  # more at once than are remembered


def test_the_oldest_result_goes_when_there_are_too_many() -> None:
    ctx, make = context(), Counting()
    for number in range(REMEMBERED):
        ctx.once(make, number)
    assert [ctx.once(make, number) for number in range(REMEMBERED)] == list(range(1, REMEMBERED + 1))
    ctx.once(make, REMEMBERED)
    made = len(make.calls)
    for number in range(1, REMEMBERED + 1):
        ctx.once(make, number)
    assert len(make.calls) == made
    ctx.once(make, 0)
    assert len(make.calls) == made + 1


@given(st.lists(st.integers(0, 2 * REMEMBERED), max_size=400))
def test_no_function_has_too_many_results_and_none_is_wrong(numbers: list[int]) -> None:
    ctx, alive = context(), list[weakref.ref[Result]]()

    def make(number: int, ctx: Context) -> Result:
        result = Result(number)
        alive.append(weakref.ref(result))
        return result

    for number in numbers:
        assert ctx.once(make, number).number == number
    assert sum(ref() is not None for ref in alive) == min(REMEMBERED, len(set(numbers)))


@dataclass
class Result:
    number: int


def test_functions_do_not_push_out_each_others_results() -> None:
    ctx, rare, often = context(), Counting(), Counting()
    ctx.once(rare)
    for number in range(3 * REMEMBERED):
        ctx.once(often, number)
    ctx.once(rare)
    assert len(rare.calls) == 1


def test_of_a_place_only_the_latest_result_is_kept() -> None:
    memo, make = Memo(), Counting()
    assert memo.latest("here", (1, "a"), make) == 1
    assert memo.latest("here", (1, "a"), make) == 1
    assert memo.latest("there", (1, "a"), make) == 2
    assert memo.latest("here", (2, "a"), make) == 3
    assert memo.latest("here", (1, "a"), make) == 4  # it was forgotten
    assert memo.latest("here", (1,), make) == 5
    assert memo.latest("there", (1, "a"), make) == 2
    assert memo.knows("there", (1, "a"))
    assert not memo.knows("there", (1, "b"))
    assert not memo.knows("nowhere", ())


def test_the_latest_is_told_apart_by_value_for_numbers_and_words_and_by_identity_else() -> None:
    memo, tensor, make = Memo(), torch.ones(2), Counting()
    memo.latest("here", (tensor, 1.5, "word"), make)
    assert memo.knows("here", (tensor, 3 / 2, "".join(["wo", "rd"])))
    assert not memo.knows("here", (tensor.clone(), 1.5, "word"))
    tensor.zero_()
    assert memo.knows("here", (tensor, 1.5, "word"))  # who changes it says so with another argument
    memo.latest("here", ((1, 2),), make)
    assert not memo.knows("here", (tuple([1, 2]),))  # noqa: C409 (another object of equal value)


def test_a_memo_is_no_part_of_what_a_context_is() -> None:
    one, other = context(), context()
    assert replace(one, task=other.task) == other
    assert "memo" not in repr(one)
