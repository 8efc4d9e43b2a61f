"""Which share of the clients is of which level, and who is."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from potluck.core.errors import ConfigError
from potluck.core.random import stream
from potluck.core.types import Level
from potluck.data.assignment import (
    ASSIGNMENTS,
    Blocks,
    Dynamic,
    DynamicAll,
    Fixed,
    assignment_named,
    redraw_until_all_present,
)
from potluck.data.mix import LETTERS, Mix, counts_of, parse_mix, shares_of

AB = (Level("a", 1.0), Level("b", 0.5))
FIVE = tuple(Level(name, ratio) for name, ratio in LETTERS.items())
NUMBERED = (Level("1", 1.0), Level("0.25", 0.25))


class TestMix:
    def test_mode_string(self) -> None:
        assert parse_mix("a2-b8") == {"a": 0.2, "b": 0.8}
        assert parse_mix("b1-e1") == {"b": 0.5, "e": 0.5}
        assert parse_mix("a1") == {"a": 1.0}
        assert LETTERS == {"a": 1, "b": 0.5, "c": 0.25, "d": 0.125, "e": 0.0625}

    @pytest.mark.parametrize("mode", ["", "a", "f1", "a2b8", "a2-a8", "a2-", "A2-b8", "a-1", "a2.5-b7"])
    def test_what_is_not_a_mode_string(self, mode: str) -> None:
        with pytest.raises(ConfigError, match="different letters a to e with weights"):
            parse_mix(mode)

    @pytest.mark.parametrize(
        ("mix", "levels", "expected"),
        [
            (None, FIVE, [0.2] * 5),
            ("a2-b8", AB, [0.2, 0.8]),
            ("b8-a2", AB, [0.2, 0.8]),
            ("a1-c3", NUMBERED, [0.25, 0.75]),  # letters mean HeteroFL's ratios where no level has that name
            ({"a": 2, "b": 8}, AB, [0.2, 0.8]),
            ({"a": 2.0, "b": 8.0}, AB, [0.2, 0.8]),
            ({1.0: 0.25, 0.25: 0.75}, NUMBERED, [0.25, 0.75]),
            ({"1.0": 0.25, "0.25": 0.75}, NUMBERED, [0.25, 0.75]),
            ({"b": 1.0}, AB, [0.0, 1.0]),
            ({"a": 0, "b": 3}, AB, [0.0, 1.0]),
        ],
    )
    def test_shares(self, mix: Mix, levels: tuple[Level, ...], expected: list[float]) -> None:
        assert shares_of(mix, levels).tolist() == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("mix", "message"),
        [
            ({"a": 0.5, "b": 0.6}, r"add up to 1\.1: fractions must add up to 1"),
            ({"a": 0.5}, r"add up to 0\.5"),
            ({"a": -1, "b": 2}, "0 or more"),
            ({"a": 0, "b": 0}, "at least one is above 0"),
            ({"a": float("nan"), "b": 1.0}, "0 or more"),
            ({}, "at least one is above 0"),
            ({"a": 0.5, "z": 0.5}, r"the level 'z', but the levels are 'a' \(1\), 'b' \(0.5\)"),
            ({"a": 0.5, 0.3: 0.5}, r"the level 0\.3, but"),
            ({"a": 0.5, "1.0": 0.5}, "gives a level two shares"),
            ("a1-e1", "the level 'e', but"),
        ],
    )
    def test_errors(self, mix: Mix, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            shares_of(mix, AB)

    def test_as_it_comes_from_a_file(self) -> None:
        for mix in ('"a2-b8"', '{"1.0": 0.2, "0.5": 0.8}', '{"a": 2, "b": 8}'):
            fixed = TypeAdapter(Fixed).validate_json(f'{{"mix": {mix}}}', strict=True)
            assert shares_of(fixed.mix, AB).tolist() == pytest.approx([0.2, 0.8])

    def test_largest_remainders(self) -> None:
        third = torch.full((3,), 1 / 3, dtype=torch.float64)
        assert counts_of(third, 100).tolist() == [33, 33, 34]
        assert counts_of(third, 101).tolist() == [33, 34, 34]
        assert counts_of(torch.tensor([0.5, 0.3, 0.2]), 7).tolist() == [4, 2, 1]  # 3.5, 2.1, 1.4
        assert counts_of(torch.tensor([0.29, 0.71], dtype=torch.float64), 100).tolist() == [29, 71]

    @given(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any), st.integers(0, 500))
    def test_counts_are_exact(self, weights: list[int], clients: int) -> None:
        shares = torch.tensor(weights, dtype=torch.float64) / sum(weights)
        counts = counts_of(shares, clients)
        assert int(counts.sum()) == clients
        assert bool(((counts - shares * clients).abs() < 1).all())


class TestAssignments:
    def test_names(self) -> None:
        assert assignment_named("dynamic-all") is DynamicAll
        assert all(assignment.__doc__ for assignment in ASSIGNMENTS.values())
        with pytest.raises(ConfigError, match="no assignment 'fix'; did you mean 'fixed'"):
            assignment_named("fix")

    def test_blocks(self) -> None:
        assert Blocks("a2-b8")(10, AB, round=3, seed=1).tolist() == [0, 0] + [1] * 8
        assert Blocks()(20, FIVE[:4], 0, 0).tolist() == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5

    def test_fixed_is_exact_and_the_same_in_every_round(self) -> None:
        fixed = Fixed({"a": 0.2, "b": 0.8})
        first = fixed(100, AB, round=0, seed=1)
        assert first.bincount().tolist() == [20, 80]
        assert torch.equal(first, fixed(100, AB, round=9, seed=1))
        assert not torch.equal(first, fixed(100, AB, round=0, seed=2))
        assert not torch.equal(first, Blocks({"a": 0.2, "b": 0.8})(100, AB, 0, 1))

    def test_dynamic_is_drawn_again_in_every_round(self) -> None:
        dynamic = Dynamic("a2-b8")
        rounds = torch.stack([dynamic(100, AB, number, seed=1) for number in range(50)])
        assert torch.equal(rounds[3], dynamic(100, AB, 3, seed=1))
        assert len({tuple(row) for row in rounds.tolist()}) == 50
        assert len({int(row.sum()) for row in rounds}) > 5  # independent draws: not the same number in every round
        assert float(rounds.double().mean()) == pytest.approx(0.8, abs=0.02)

    def test_a_level_without_a_share_never_occurs(self) -> None:
        for assignment in (Fixed("a1-b0"), Blocks("a1-b0"), Dynamic("a1-b0"), DynamicAll("a1-b0")):
            assert assignment(30, AB, 0, 0).tolist() == [0] * 30

    @given(st.integers(5, 12), st.integers(0, 100))
    def test_dynamic_all_has_every_level(self, clients: int, seed: int) -> None:
        assert len(set(DynamicAll()(clients, FIVE, seed, seed).tolist())) == 5

    def test_dynamic_all_draws_as_if_the_rest_had_been_thrown_away(self) -> None:
        """Three draws of two levels, both present: P(two of the first) = 3 p² q / (3 p² q + 3 p q²) = p."""
        drawn = [int((DynamicAll("a8-b2")(3, AB, number, 0) == 0).sum()) for number in range(2000)]
        assert set(drawn) == {1, 2}
        assert drawn.count(2) / 2000 == pytest.approx(0.8, abs=0.03)

    def test_where_chance_would_take_too_long(self) -> None:
        shares = torch.tensor([1 - 1e-9, 1e-9], dtype=torch.float64)
        assert sorted(redraw_until_all_present(shares, 3, stream(0)).tolist()) == [0, 0, 1]
        twelve = torch.full((12,), 1 / 12, dtype=torch.float64)
        assert sorted(redraw_until_all_present(twelve, 12, stream(0)).tolist()) == list(range(12))

    def test_more_levels_than_clients(self) -> None:
        with pytest.raises(ConfigError, match=r"5 levels, but 4 clients cannot be of all of them.*at least 5 clients"):
            DynamicAll()(4, FIVE, 0, 0)
