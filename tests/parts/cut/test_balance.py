"""Counts that leave rows of channels equally long, by hand and over random rows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.parts.cut.balance import Balance, Row, Rows

FEW = settings(max_examples=60, deadline=None)


def row(staying: int = 0, **places: int) -> Row:
    """`row(a0=2, a3=1)`: two places of block 0, one of block 3."""
    return Row(tuple((int(block[1:]), held) for block, held in places.items()), staying)


HEADS_BESIDE_WHAT_STAYS = [
    (row(a0=6, staying=2), row(a1=8), row(a2=8)),
    (row(a1=8), row(a2=8)),
    (row(a1=8, a2=8), row(a3=16)),
]


@pytest.mark.parametrize(
    ("sizes", "rows", "width", "counts", "evened"),
    [
        ([8, 8], [], 0.5, [4, 4], [4, 4]),
        ([8, 8], [(row(a0=8), row(a1=8))], 0.5, [4, 4], [4, 4]),  # even already
        ([3, 1], [(row(a0=1), row(a1=1))], 0.5, [2, 1], [3, 1]),  # a row of one place cannot be shared by 3
        ([6, 4], [(row(a0=6), row(a1=4, staying=2))], 0.5, [3, 2], [4, 2]),  # 4 = 2 + 2, nearer than 3 = 1 + 2
        ([4, 6], [(row(a0=4, staying=2), row(a1=6))], 0.5, [2, 3], [2, 4]),  # one more in the shorter row
        ([8], [(row(a0=8), row(staying=8))], 0.5, [4], [8]),  # as long as what stays: whole
        # 0: queries beside 2 places that stay, 1 and 2: values of two heads, 3: what both make together
        ([6, 8, 8, 16], HEADS_BESIDE_WHAT_STAYS, 0.25, [2, 2, 2, 4], [1, 3, 3, 6]),
        ([6, 8, 8, 16], HEADS_BESIDE_WHAT_STAYS, 0.75, [6, 6, 6, 12], [4, 6, 6, 12]),
    ],
)
def test_by_hand(sizes: list[int], rows: list[Rows], width: float, counts: list[int], evened: list[int]) -> None:
    assert Balance(sizes, rows, width).evened(counts) == evened


@pytest.mark.parametrize(
    ("sizes", "rows", "counts", "move", "carried"),
    [
        ([8, 6], (row(a0=8), row(a1=6, staying=2)), [3, 1], {0: 5}, {0: 5, 1: 3}),
        ([8, 4], (row(a0=8), row(a1=8)), [4, 2], {0: 6}, {0: 6, 1: 3}),  # two places of each channel
        ([8, 4], (row(a0=8), row(a1=8)), [4, 2], {0: 5}, {0: 5}),  # 2.5 channels
        ([8, 6], (row(a0=8), row(a1=6, staying=2)), [3, 1], {0: 2}, {0: 2}),  # none would be left
        ([8, 2], (row(a0=8), row(a1=2)), [1, 1], {0: 3}, {0: 3}),  # as many as it has not
        ([8, 8, 8], (row(a0=8), row(a1=8), row(a2=8)), [4, 4, 4], {0: 5, 1: 3}, {0: 5, 1: 3}),  # as long as which?
        ([8, 8], (row(a0=8), row(a1=8)), [3, 4], {0: 5}, {0: 5}),  # it was uneven before
    ],
)
def test_what_is_carried_along(
    sizes: list[int], rows: Rows, counts: list[int], move: dict[int, int], carried: dict[int, int]
) -> None:
    assert Balance(sizes, [rows], 0.5).carried(counts, move) == carried


def test_what_is_carried_along_carries_more() -> None:
    chain = [(row(a1=8), row(a2=8)), (row(a0=8), row(a1=8))]
    assert Balance([8, 8, 8], chain, 0.5).carried([4, 4, 4], {0: 5}) == {0: 5, 1: 5, 2: 5}


def test_rows_are_evened_with_those_beside_places_that_stay() -> None:
    rows = [(row(a0=4, staying=4), row(a1=8)), (row(a1=8), row(a2=6, staying=2))]
    assert Balance([4, 8, 6], rows, 0.25).evened([1, 3, 1]) == [1, 5, 3]


def test_a_place_is_shared_by_a_blocks_channels() -> None:
    """12 places of a block of 4 are three of each channel."""
    balance = Balance([4, 6], [], 0.5)
    assert balance.length(row(a0=12, a1=6, staying=1), [2, 3]) == 1 + 12 * 2 / 4 + 3


def test_how_uneven_rows_are() -> None:
    balance = Balance([8, 8, 8], [(row(a0=8), row(a1=8), row(a2=8))], 0.5)
    assert balance.difference(balance.rows[0], [4, 2, 7]) == 5
    assert balance.cost([4, 2, 7], {}) == (5, (4 - 4) ** 2 + (2 - 4) ** 2 + (7 - 4) ** 2)
    assert balance.cost([4, 2, 7], {1: 4, 2: 4}) == (0, 0)


def test_channels_in_two_sets_of_rows_are_evened_once() -> None:
    """Halves of a shuffle: 0 with 1 in one split, 1 with 2 in the next."""
    rows = [(row(a0=6), row(a1=6)), (row(a1=6), row(a2=6))]
    found = Balance([6, 6, 6], rows, 0.5).evened([3, 2, 4])
    assert found == [3, 3, 3]


@st.composite
def balances(draw: st.DrawFn) -> tuple[Balance, list[int]]:
    """Sets of two or three rows that are equally long at full width, as they are in a network that runs."""
    sizes = draw(st.lists(st.integers(1, 8), min_size=2, max_size=5))
    sets = []
    for _ in range(draw(st.integers(0, 3))):
        held = draw(
            st.lists(st.lists(st.sampled_from(range(len(sizes))), unique=True, max_size=2), min_size=2, max_size=3)
        )
        lengths = [sum(sizes[block] for block in blocks) for blocks in held]
        sets.append(
            tuple(
                Row(tuple((block, sizes[block]) for block in sorted(blocks)), max(lengths) - length)
                for blocks, length in zip(held, lengths, strict=True)
            )
        )
    width = draw(st.sampled_from([0.1, 0.25, 0.5, 0.7]))
    return Balance(sizes, sets, width), [max(1, -int(-size * width // 1)) for size in sizes]


@FEW
@given(balances())
def test_rows_are_even_and_counts_possible(given_balance: tuple[Balance, list[int]]) -> None:
    balance, counts = given_balance
    found = balance.evened(counts)
    assert all(balance.difference(rows, found) < 1e-9 for rows in balance.rows)
    assert all(1 <= count <= size for count, size in zip(found, balance.sizes, strict=True))


@FEW
@given(balances())
def test_blocks_in_no_row_are_left_alone_and_evening_again_changes_nothing(
    given_balance: tuple[Balance, list[int]],
) -> None:
    balance, counts = given_balance
    found = balance.evened(counts)
    touched = {block for rows in balance.rows for each in rows for block, _ in each.places}
    assert all(found[block] == counts[block] for block in range(len(counts)) if block not in touched)
    assert balance.evened(found) == found
