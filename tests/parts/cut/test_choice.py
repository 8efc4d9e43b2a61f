"""Which channels each rule picks, by hand and over random sizes."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.parts.cut.choice import Block, Choice, Disjoint, Largest, Prefix, Random, Rolling

SIZES = st.integers(1, 40).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size)))
RULES = [Prefix(), Rolling(5), Disjoint(1, 3), Random(7), Largest(tuple((7 * at) % 11 for at in range(60)))]


def block(size: int, first: int = 0) -> Block:
    return Block(tuple(range(first, first + size)))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Prefix(), [0, 1, 2, 3]),
        (Rolling(3), [3, 4, 5, 6]),  # FedRolex, round 3
        (Rolling(6), [0, 1, 6, 7]),  # goes on at the other end
        (Rolling(8), [0, 1, 2, 3]),
        (Rolling(19), [3, 4, 5, 6]),
        (Disjoint(0, 2), [0, 1, 2, 3]),
        (Disjoint(1, 2), [4, 5, 6, 7]),
        (Disjoint(2, 3), [0, 5, 6, 7]),  # 2 · 8 // 3 = 5
        (Largest((5.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0)), [0, 2, 4, 6]),
        (Largest((1.0, 2.0, 2.0, 3.0, 2.0, 2.0, 1.0, 3.0)), [1, 2, 3, 7]),  # of the 2s, the first two
    ],
)
def test_four_of_eight_by_hand(choice: Choice, expected: list[int]) -> None:
    assert list(choice(block(8), 4)) == expected


@given(SIZES, st.sampled_from(RULES))
def test_as_many_as_asked_for_in_ascending_order(sizes: tuple[int, int], choice: Choice) -> None:
    size, kept = sizes
    picked = list(choice(block(size), kept))
    assert picked == sorted(set(picked))
    assert len(picked) == kept
    assert set(picked) <= set(range(size))


@given(SIZES)
def test_over_as_many_rounds_as_channels_each_has_its_turn_equally_often(sizes: tuple[int, int]) -> None:
    size, kept = sizes
    turns = Counter(channel for offset in range(size) for channel in Rolling(offset)(block(size), kept))
    assert [turns[channel] for channel in range(size)] == [kept] * size


@given(st.integers(1, 60), st.integers(1, 8))
def test_windows_that_fit_side_by_side_share_no_channel(size: int, of: int) -> None:
    windows = [set(Disjoint(number, of)(block(size), size // of)) for number in range(of)]
    assert all(not one & other for one, other in combinations(windows, 2))


@given(SIZES, st.integers(0, 100))
def test_a_narrower_window_lies_in_a_wider_one(sizes: tuple[int, int], offset: int) -> None:
    size, kept = sizes
    for choice in (Prefix(), Rolling(offset)):
        assert set(choice(block(size), kept)) <= set(choice(block(size), size))
        assert set(choice(block(size), kept // 2)) <= set(choice(block(size), kept))


def test_a_random_choice_depends_on_the_seed_and_the_block_alone() -> None:
    first = list(Random(1)(block(30), 10))
    Random(2)(block(5), 3)
    assert list(Random(1)(block(30), 10)) == first
    assert list(Random(2)(block(30), 10)) != first
    assert list(Random(1)(block(30, first=30), 10)) != first


def test_a_random_choice_reaches_every_channel() -> None:
    reached = {channel for seed in range(40) for channel in Random(seed)(block(8), 2)}
    assert reached == set(range(8))


def test_norms_are_looked_up_by_channel_not_by_position() -> None:
    norms = (9.0, 9.0, 9.0, 0.0, 5.0, 1.0, 4.0)
    assert list(Largest(norms)(Block((3, 4, 5, 6)), 2)) == [1, 3]
    assert list(Largest(norms)(Block((6, 5, 4, 3)), 2)) == [0, 2]


@pytest.mark.parametrize("choice", RULES)
def test_a_choice_can_be_a_key(choice: Choice) -> None:
    assert len({choice, type(choice)(**vars(choice))}) == 1
