"""Pieces that slices make of a dimension."""

from __future__ import annotations

import pytest
import torch

from potluck.parts.trace.slices import Slices, even, partitions


@pytest.mark.parametrize(
    ("taken", "pieces"),
    [
        ({(0, 4), (4, 12)}, [[4, 12]]),
        ({(0, 4), (4, 8)}, [[4, 4, 4, 4], [4, 8, 4]]),  # the last is missing; 8 from 4 on is none of two halves
        ({(0, 4), (6, 10)}, [[4, 4, 4, 4], [6, 10]]),
        ({(0, 8), (4, 12)}, [[8, 8], [4, 12]]),
        ({(8, 8)}, [[8, 8]]),
        ({(2, 4)}, [[2, 4, 10]]),
        ({(0, 5)}, [[5, 11]]),
        ({(11, 5)}, [[11, 5]]),
    ],
    ids=["all", "the last missing", "a gap", "overlap", "half", "between", "front", "back"],
)
def test_how_slices_divide_a_dimension(taken: set[tuple[int, int]], pieces: list[list[int]]) -> None:
    assert partitions(16, taken) == pieces


def test_pieces_of_one_length_stay_equally_long_together_and_others_each_for_itself() -> None:
    two, three = torch.zeros(1, 2), torch.zeros(1, 3)
    assert [tuple(rows.shape) for rows in even([two, two])] == [(2, 2)]
    assert [tuple(rows.shape) for rows in even([two, three])] == [(1, 2), (1, 3)]


def test_rows_have_the_atoms_of_their_places() -> None:
    rows = list(Slices([torch.arange(6)[None]], {(2, 2)}).rows())
    assert [each.tolist() for each in rows] == [[[0, 1], [2, 3], [4, 5]]]
