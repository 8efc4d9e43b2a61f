"""What is remembered of how holders joined is bounded."""

from __future__ import annotations

import pytest
import torch

from potluck.parts.cut import holders
from potluck.parts.cut.holders import Holders, Joins, scalars_of
from potluck.parts.cut.kept import Cut, Kept

SIZE = 40


def cut(keep: int) -> Cut:
    """Every other of the first rows: too many runs for slices, so ratios are written out."""
    return (Kept.of(SIZE, range(0, keep, 2)), Kept.of(3, range(3)))


def test_what_is_known_is_not_worked_out_again() -> None:
    joins, nobody = Joins(), Holders.nobody((SIZE, 3))
    first = joins.found((nobody, cut(20), 1.0, torch.float32))
    assert joins.found((nobody, cut(20), 1.0, torch.float32)) is first
    assert joins.found((nobody, cut(20), 2.0, torch.float32)) is not first


def test_neither_their_number_nor_their_ratios_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "REMEMBERED", 5)
    monkeypatch.setattr(holders, "MOST_SCALARS", 100)
    joins, grid = Joins(), Holders.nobody((SIZE, 3))
    largest = 0
    for keep in range(20, 40):
        grid, bands = joins.found((grid, cut(keep), 1.0, torch.float32))
        largest = max(largest, scalars_of(bands))
        assert len(joins.known) <= 5
        assert joins.scalars == sum(scalars_of(known) for _, known in joins.known.values())
        assert joins.scalars <= max(100, scalars_of(bands))
    assert largest > 0
