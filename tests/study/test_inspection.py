"""What a run's method recorded, as tables and lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_experiment import SMALL, interrupted, run_config, write_config

from potluck.core.errors import RunError
from potluck.core.panels import Heatmap
from potluck.core.types import Context, Tensors
from potluck.methods.heterofl import HeteroFL
from potluck.report.inspection import latest_state, lines, numbers_in, panels_of, quantities, spread, tables
from potluck.study.record import RunDirectory


def recorded(folder: Path, *rounds: dict[str, Any]) -> RunDirectory:
    """A run whose method recorded this, round by round."""
    records = ({"round": number, "method": found} for number, found in enumerate(rounds, start=1))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return RunDirectory(folder)


def test_numbers_by_layer_are_shown_by_round(tmp_path: Path) -> None:
    run = recorded(tmp_path, *({"rank": {"a": 10.0 + r, "b": 20.0 + r}} for r in range(31)))
    (table,) = tables(quantities(run))
    assert table.title == "rank, by round"
    assert table.columns == ("1", "7", "13", "19", "25", "31")
    assert table.rows == {"a": (10, 16, 22, 28, 34, 40), "b": (20, 26, 32, 38, 44, 50)}


def test_numbers_by_level_and_layer_are_shown_after_the_last_round(tmp_path: Path) -> None:
    early = {"lost": {"big": {"a": 9.0}, "small": {"a": 9.0, "b": 9.0}}}
    late = {"lost": {"big": {"a": 1.0}, "small": {"a": 2.0, "b": 3.0}}}
    (table,) = tables(quantities(recorded(tmp_path, early, late)))
    assert table.title == "lost, after round 2"
    assert table.columns == ("big", "small")
    assert table.rows == {"a": (1, 2), "b": (None, 3)}


def test_lists_and_single_numbers(tmp_path: Path) -> None:
    run = recorded(tmp_path, {"norms": {"a": [1.0, 2.0], "b": [3.0, 4.0]}, "most": 4.0, "pair": [5, 6], "count": 7})
    norms, pair, single = tables(quantities(run))
    assert (norms.title, norms.columns, norms.rows) == ("norms, after round 1", ("1", "2"), {"a": (1, 2), "b": (3, 4)})
    assert (pair.columns, pair.rows) == (("1",), {"1": (5,), "2": (6,)})
    assert (single.columns, single.rows) == (("1",), {"most": (4,), "count": (7,)})


def test_what_some_rounds_lack_is_a_gap(tmp_path: Path) -> None:
    run = recorded(tmp_path, {}, {"rank": {"a": 1.0}}, {"rank": {"a": 2.0, "b": 3.0}, "lost": {"x": {"a": 1}}}, {})
    rank, lost = tables(quantities(run))
    assert rank.rows == {"a": (None, 1, 2, None), "b": (None, None, 3, None)}
    assert lost.title == "lost, after round 3"
    (panel, _) = lines(quantities(run))
    torch.testing.assert_close(
        torch.tensor(panel.series["a"]), torch.tensor([torch.nan, 1, 2, torch.nan]), equal_nan=True
    )


def test_nested_more_deeply(tmp_path: Path) -> None:
    assert dict(numbers_in({"x": {"y": {"a": 1}}, "z": 2})) == {("x", "y", "a"): 1, ("z",): 2}
    (table,) = tables(quantities(recorded(tmp_path, {"q": {"x": {"y": {"a": 1}}, "z": 2}})))
    assert (table.columns, table.rows) == (("x / y", ""), {"a": (1, None), "z": (None, 2)})


def test_lines_of_all_that_changes(tmp_path: Path) -> None:
    first = {"rank": {"a": 1.0, "b": 5.0}, "lost": {"big": {"a": 1.0}, "small": {"a": 2.0}}, "fixed": {"a": 3}, "k": 1}
    second = {"rank": {"a": 2.0, "b": 5.0}, "lost": {"big": {"a": 0.5}, "small": {"a": 0.5}}, "fixed": {"a": 3}, "k": 2}
    found = {panel.title: panel for panel in lines(quantities(recorded(tmp_path, first, second)))}
    assert list(found) == ["rank", "lost: big", "lost: small", "k"]
    assert found["rank"].x == (1, 2)
    assert found["rank"].series == {"a": (1, 2), "b": (5, 5)}
    assert found["lost: small"].series == {"a": (2, 0.5)}
    assert found["k"].series == {"k": (1, 2)}
    assert (found["lost: big"].x_name, found["lost: big"].y_name) == ("round", "lost")


@pytest.mark.parametrize(
    ("values", "expected"), [((1e-5, 1.0), True), ((0.5, 1.0), False), ((0.0, 1e5), False), ((-1.0, 1e5), False)]
)
def test_values_far_apart_get_a_logarithmic_scale(tmp_path: Path, values: tuple[float, float], expected: bool) -> None:
    (panel,) = lines(quantities(recorded(tmp_path, *({"error": {"a": value}} for value in values))))
    assert panel.logarithmic == expected


@given(st.integers(1, 500), st.integers(2, 20))
def test_rounds_are_evenly_spaced_from_the_first_to_the_last(count: int, most: int) -> None:
    places = spread(count, most)
    assert len(places) == min(count, most)
    assert (places[0], places[-1]) == (0, count - 1)
    steps = {after - before for before, after in pairwise(places)}
    assert not steps or (min(steps) > 0 and max(steps) - min(steps) <= 2)


def test_records_of_old_runs_have_nothing(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"round": 1}\n')
    assert quantities(RunDirectory(tmp_path)) == []
    assert tables([]) == []
    assert lines([]) == []


def test_what_is_no_run_or_has_no_round_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no run"):
        quantities(RunDirectory(tmp_path))
    with pytest.raises(RunError, match="no finished round"):
        quantities(recorded(tmp_path))


@dataclass(frozen=True)
class Showing(HeteroFL):
    """HeteroFL that shows its head and the round it was asked in."""

    def panels(self, state: Tensors, ctx: Context) -> list[Heatmap]:
        return [Heatmap(f"round {ctx.round}", next(t for t in state.values() if t.dim() == 2))]

    def diagnose(self, state: Tensors, ctx: Context, joined: Mapping[str, int]) -> dict[str, Any]:
        return {"round": {"a": ctx.round}}


SHOWING = SMALL.replace('name = "heterofl"', f'name = "{__name__}:Showing"')


def test_the_method_is_asked_for_pictures_of_the_final_state(tmp_path: Path) -> None:
    result = run_config(write_config(tmp_path, SHOWING), tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    run.checkpoint.unlink()  # a finished run can do without
    over_rounds, head = panels_of(run, trust=True)
    assert over_rounds.title == "round"
    assert isinstance(head, Heatmap)
    assert head.title == "round 2"
    assert torch.equal(head.values, next(t for t in result.state.values() if t.dim() == 2))


def test_or_of_the_latest_state_of_an_unfinished_run(tmp_path: Path) -> None:
    run = RunDirectory(interrupted(write_config(tmp_path, SHOWING), tmp_path / "run", after=2))
    assert latest_state(run)[1] == 2
    _, head = panels_of(run, trust=True)
    assert isinstance(head, Heatmap)
    assert head.title == "round 1"
    kept = run.progress().state
    assert torch.equal(head.values, next(t for t in kept.values() if t.dim() == 2))


def test_by_default_a_method_shows_nothing(tmp_path: Path) -> None:
    run_config(write_config(tmp_path), tmp_path / "run", "task.rounds=1")
    assert panels_of(RunDirectory(tmp_path / "run")) == []
