"""Groups hold runs that differ in nothing but their seed, and their names tell them apart."""

import json
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import run

from potluck.series.groups import Spread, asked, grouped

SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "method.name": st.sampled_from(["fedhm", "heterofl"]),
        "train.lr": st.sampled_from([0.1, 0.2, 1, "1"]),
        "data.alpha": st.sampled_from([1, 2, None]),
        "method.alpha": st.sampled_from([1, 2]),
        "task.long": st.sampled_from(["x" * 50 + "a", "x" * 50 + "b"]),
        "data.test_examples": st.sampled_from([10, 20]),
        "seed": st.integers(0, 3),
        "name": st.sampled_from(["a", "b"]),
        "engine.workers": st.integers(0, 2),
        "recipe.run": st.sampled_from(["1f", "2f"]),
        "series.row": st.sampled_from(["p", "q"]),
    },
)
FREE = ("seed", "name", "engine.workers", "recipe.run", "series.row")


def asking(settings):
    """What sets groups apart; 1 and "1" are two things."""
    return json.dumps(
        {key: value for key, value in settings.items() if key not in FREE and value is not None}, sort_keys=True
    )


@given(st.lists(SETTINGS, min_size=1, max_size=8))
def test_groups_never_mix_runs_that_differ_and_never_split_those_that_do_not(many):
    runs = [run([0.5], f"run{number}", **settings) for number, settings in enumerate(many)]
    groups = grouped(runs)
    assert sorted(each.path for group in groups for each in group.runs) == sorted(each.path for each in runs)
    kinds = [{asking(each.settings) for each in group.runs} for group in groups]
    assert all(len(kind) == 1 for kind in kinds)
    with_nothing = {json.dumps({k: v for k, v in s.items() if k not in FREE}, sort_keys=True) for s in many}
    assert len(groups) == len(with_nothing)


@given(st.lists(SETTINGS, min_size=1, max_size=8))
def test_names_tell_all_groups_apart(many):
    names = [group.name for group in grouped([run([0.5], f"run{at}", **each) for at, each in enumerate(many)])]
    assert len(set(names)) == len(names)


def names_of(*many):
    return [group.name for group in grouped([run([0.5], f"run{at}", **each) for at, each in enumerate(many)])]


def test_a_name_has_what_sets_the_group_apart_and_nothing_else():
    common = {"train__lr": 0.1, "data__source__name": "digits"}
    assert names_of({**common, "method__name": "fedhm"}, {**common, "method__name": "flanc"}) == ["fedhm", "flanc"]
    assert names_of({"train__lr": 0.1}, {"train__lr": 0.2}, {"train__lr": 0.1}) == ["lr=0.1", "lr=0.2"]


def test_a_setting_that_follows_from_another_is_not_named():
    one, other = {"method__name": "fedhm", "train__lr": 0.1}, {"method__name": "flanc", "train__lr": 0.2}
    assert names_of(one, other) == ["fedhm", "flanc"]


def test_all_settings_that_differ_are_known_though_one_is_enough_for_the_name():
    one, other = {"method__name": "fedhm", "train__lr": 0.1}, {"method__name": "flanc", "train__lr": 0.2}
    found = grouped([run([0.5], "run", **settings) for settings in (one, other)])
    assert [group.differs for group in found] == [
        {"method.name": "fedhm", "train.lr": 0.1},
        {"method.name": "flanc", "train.lr": 0.2},
    ]


def test_a_group_was_asked_with_all_of_its_seeds_for_all_of_its_rounds():
    (group,) = grouped([run([0.5] * rounds, f"run{seed}", seed=seed) for seed, rounds in ((0, 2), (3, 2))])
    found = asked(group)
    assert (found["seed"], found["rounds"], found["evaluated"]) == ([0, 3], 2, 2)


def test_settings_with_the_same_last_word_are_named_in_full():
    ones = [{"data__alpha": one, "method__alpha": other} for one in (1, 2) for other in (1, 2)]
    assert names_of(*ones)[1] == "data.alpha=1, method.alpha=2"


def test_a_setting_that_is_missing_is_told():
    assert names_of({"train__clip": 1}, {}) == ["clip=1", "no clip"]


def test_runs_of_one_experiment_are_called_by_its_name():
    assert names_of({"seed": 0}, {"seed": 1}) == ["made"]


def test_runs_that_were_scored_on_other_examples_are_not_one_group():
    assert len(names_of({"data__test_examples": 10}, {"data__test_examples": 20})) == 2


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_mean_and_deviation_are_those_of_a_sample(values):
    found = Spread.of(values)
    assert found.count == len(values)
    assert found.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-6)
    assert found.deviation == pytest.approx(np.std(values, ddof=1), rel=1e-9, abs=1e-4)
    assert found.deviation == statistics.stdev(values)


def test_missing_values_are_left_out_and_one_value_has_no_deviation():
    assert Spread.of([None, 0.25, None]) == Spread(0.25, None, 1)
    assert Spread.of([None]) is None
    assert Spread.of([]) is None


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_run_that_diverged_has_no_deviation_but_does_no_harm(value):
    found = Spread.of([1.0, value])
    assert math.isnan(found.deviation)
    assert not math.isfinite(found.mean)


def test_runs_of_a_preset_are_called_by_row_and_case():
    first = run([0.5], "a", train__lr=0.1, series__row="flanc", series__case="iid")
    again = run([0.5], "b", train__lr=0.1, seed=1, series__row="flanc", series__case="iid")
    other = run([0.5], "c", train__lr=0.2, series__row="heterofl")
    assert [group.name for group in grouped([first, again, other])] == ["flanc.iid", "heterofl"]
    smaller = run([0.5], "d", train__lr=0.3, series__row="heterofl")
    alone = run([0.5], "e", train__lr=0.3)
    for others in ([other, smaller], [other, alone]):  # the same cell at another scale, and a run of no preset
        assert [group.name for group in grouped([first, *others])] == ["lr=0.1", "lr=0.2", "lr=0.3"]
