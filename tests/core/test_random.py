"""Every draw belongs to a key, whatever was drawn before."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.networks import ByWidth
from potluck.core.random import number, seeded, stream
from potluck.core.types import Context, Level, Task

KEYS = st.tuples(st.integers(), st.text(max_size=5), st.integers())


def draw(rng: torch.Generator) -> list[float]:
    return torch.rand(5, generator=rng).tolist()


def test_a_stream_depends_on_its_key_and_not_on_earlier_calls() -> None:
    first = draw(stream(1, "cohort", 3))
    draw(stream(1, "cohort", 4))
    torch.rand(7)
    assert draw(stream(1, "cohort", 3)) == first


@given(KEYS, KEYS)
def test_different_keys_give_different_numbers(one: tuple[object, ...], other: tuple[object, ...]) -> None:
    assert (number(0, *one) == number(0, *other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((0, "a"), (1, "a")),
        ((0, "a", 1), (0, "a", "1")),
        ((0, "a", 1, 2), (0, "a", 12)),
        ((0, "ab"), (0, "a", "b")),
        ((0,), (0, None)),
    ],
)
def test_keys_that_look_alike_are_told_apart(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    assert draw(stream(*one)) != draw(stream(*other))


@given(KEYS)
def test_numbers_fit_a_generator(key: tuple[object, ...]) -> None:
    assert 0 <= number(0, *key) < 2**63


def test_a_number_is_the_same_in_every_process_and_release() -> None:
    assert number(0, "cohort", 3) == 6894072766702451718


def test_the_global_generator_is_put_back() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3).tolist()
    torch.manual_seed(5)
    with seeded(0, "init"):
        inside = torch.rand(3).tolist()
    assert torch.rand(3).tolist() == expected
    with seeded(0, "init"):
        assert torch.rand(3).tolist() == inside
    assert inside != expected


def test_the_global_generator_is_put_back_after_an_error() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3).tolist()
    torch.manual_seed(5)
    with pytest.raises(RuntimeError, match="broken"), seeded(0, "init"):
        raise RuntimeError(f"broken after {torch.rand(1)}")
    assert torch.rand(3).tolist() == expected


LEVEL = Level("all", 1.0)


def context(seed: int = 0, round: int = 0) -> Context:
    example = (torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))
    return Context(Task(ByWidth(lambda width: torch.nn.Linear(2, 2)), (LEVEL,), 2, {}, example), round, seed)


def test_a_context_draws_by_seed_round_and_key() -> None:
    drawn = [
        draw(context(seed, round).rng(key)) for seed, round, key in [(0, 0, "a"), (1, 0, "a"), (0, 1, "a"), (0, 0, "b")]
    ]
    assert all(drawn[0] != other for other in drawn[1:])
    assert draw(context(0, 0).rng("a")) == drawn[0]


def test_a_network_starts_the_same_in_every_round_and_wherever_it_is_built() -> None:
    torch.manual_seed(1)
    first = context(seed=4, round=0).build(LEVEL)
    torch.manual_seed(2)
    again, elsewhere = context(seed=4, round=9).build(LEVEL), context(seed=5).build(LEVEL)
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, elsewhere.weight)
