"""Held parts and how their holders joined: what is remembered is right and bounded."""

from __future__ import annotations

import pytest
import torch

from potluck.parts.cut import holders, kept
from potluck.parts.cut.holders import Holders, Joins, scalars_of
from potluck.parts.cut.kept import Cut, HeldPart, Kept

SIZE = 40


def cut(keep: int) -> Cut:
    """Every other of the first rows: too many runs for slices, so ratios are written out."""
    return (Kept.of(SIZE, range(0, keep, 2)), Kept.of(3, range(3)))


def test_rows_of_a_part_are_counted_among_those_it_holds() -> None:
    part = HeldPart((Kept.of(8, [1, 2, 5, 6]), Kept.of(3, range(3))))
    assert part.of_rows((0, 2, 3)).cut == (Kept(8, ((1, 2), (5, 7))), part.cut[1])


def test_no_more_than_some_sets_of_rows_are_remembered() -> None:
    part = HeldPart((Kept.of(SIZE, range(SIZE)),))
    for row in range(SIZE):
        for other in range(row):
            assert part.of_rows((other, row)).shape == (2,)
            assert len(part.known_rows) <= kept.REMEMBERED


def test_one_ratio_for_all_rows_is_that_of_every_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scattered columns are gathered a few rows at a time."""
    columns = [0, 3, 4, 7, 9, 10, 11, 15, 17, 18, 19, 20, 23]
    part = HeldPart((Kept.of(6, range(6)), Kept.of(24, columns)))
    assert part.scattered
    ratio, narrow = (
        torch.linspace(0.1, 0.9, len(columns))[None],
        torch.randn(6, len(columns), generator=torch.Generator().manual_seed(0)),
    )
    wide, expected = torch.ones(6, 24), torch.ones(6, 24)
    expected[:, columns] = 1 + ratio * (narrow - 1)
    monkeypatch.setattr(kept, "GATHERED", 48)  # two rows
    part.approach(wide, narrow, ratio, anew=False)
    assert torch.allclose(wide, expected, atol=1e-6)  # some are close to 0


def test_what_is_known_is_not_worked_out_again() -> None:
    joins, nobody = Joins(), Holders.nobody((SIZE, 3))
    first = joins.found((nobody, cut(20), 1.0, torch.float32))
    assert joins.found((nobody, cut(20), 1.0, torch.float32)) is first
    assert joins.found((nobody, cut(20), 2.0, torch.float32)) is not first


@pytest.mark.parametrize(("number", "scalars"), [(5, 10**6), (10**6, 100), (10**6, 1)])
def test_neither_their_number_nor_their_ratios_grow_without_end(
    number: int, scalars: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "REMEMBERED", number)
    monkeypatch.setattr(holders, "MOST_SCALARS", scalars)
    joins, grid = Joins(), Holders.nobody((SIZE, 3))
    largest = 0
    for keep in range(20, 40):
        question = (grid, cut(keep), 1.0, torch.float32)
        grid, bands = joins.found(question)
        largest = max(largest, scalars_of(bands))
        assert len(joins.known) <= number
        assert question in joins.known  # the newest stays, however large
        assert joins.scalars == sum(scalars_of(known) for _, known in joins.known.values())
        assert joins.scalars <= max(scalars, scalars_of(bands))
    assert largest > 0
