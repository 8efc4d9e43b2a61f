"""Scores at an equal budget, and what a target took, beside slow counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import run

from potluck.series.costs import LEEWAY, at_budget, equal_budget, to_reach
from potluck.series.played import Played

SCORE = st.one_of(st.none(), st.floats(0, 1))
SPENT = st.tuples(*[st.integers(0, 1000)] * 3, st.floats(0, 10))
RUN = st.lists(st.tuples(SCORE, SPENT), min_size=1, max_size=8).filter(
    lambda rounds: any(s is not None for s, _ in rounds)
)
PARTS = {"bytes": (0, 1), "MACs": (2,), "seconds": (3,)}


def played(rounds):
    """A run from the score and the expenses of every round."""
    records = [run([score], spent=spent).records[0] for score, spent in rounds]
    return Played(run([0]).path, {}, records)


def slowly(rounds, what, stop):
    """What was spent up to the first round at which to stop, counted from the start; None if there is none."""
    total = 0.0
    for score, spent in rounds:
        total += sum(spent[part] for part in PARTS[what])
        if score is not None and stop(score, total):
            return total
    return None


@given(RUN, st.sampled_from(list(PARTS)), st.floats(0, 1))
def test_the_cost_of_a_target_is_all_that_was_spent_up_to_the_first_round_that_reached_it(rounds, what, target):
    assert to_reach(played(rounds), what, target) == slowly(rounds, what, lambda score, _: score >= target)


@given(RUN, st.sampled_from(list(PARTS)), st.floats(0, 5000))
def test_the_score_at_a_budget_is_that_of_the_last_scored_round_within_it(rounds, what, budget):
    within = [None]
    slowly(rounds, what, lambda score, total: total <= budget * (1 + LEEWAY) and within.append(score))
    assert at_budget(played(rounds), what, budget) == within[-1]


@given(st.lists(st.lists(RUN, min_size=1, max_size=3), min_size=1, max_size=3), st.sampled_from(list(PARTS)))
def test_an_equal_budget_is_all_that_the_cheapest_group_spent_and_all_of_its_runs_are_within_it(many, what):
    groups = [[played(rounds) for rounds in group] for group in many]
    totals = [
        max(slowly([*rounds, (2.0, (0, 0, 0, 0.0))], what, lambda s, _: s == 2) for rounds in group) for group in many
    ]
    budget = equal_budget(groups, what)
    assert budget == min(totals)
    cheapest = groups[totals.index(budget)]
    assert [at_budget(run, what, budget) for run in cheapest] == [run.last("mean") for run in cheapest]


def test_the_figures_of_fedhm_figure_7():
    """Communication is 2 x participants x parameters x rounds, computation MACs x epochs x samples x rounds."""
    participants, parameters, macs, epochs, samples = 3, 1000, 50, 2, 400
    way, work = participants * parameters * 4, macs * epochs * samples
    found = run([0.2, 0.4, 0.6, 0.5, 0.7], spent=(way, way, work, 1.5))
    assert to_reach(found, "bytes", 0.55) == 2 * participants * parameters * 4 * 3
    assert to_reach(found, "MACs", 0.55) == macs * epochs * samples * 3
    assert to_reach(found, "seconds", 0.55) == 4.5
    assert to_reach(found, "bytes", 0.9) is None


def test_a_round_that_was_not_scored_reaches_nothing_but_is_paid_for():
    found = run([0.2, None, 0.6])
    assert to_reach(found, "MACs", 0.5) == 300
    assert at_budget(found, "MACs", 94) is None
    assert at_budget(found, "MACs", 280) == 0.2


def test_a_hair_more_than_the_budget_is_within_it():
    """Levels are drawn, so the runs of a group never cost the same; the dearer ones had no score, or an older one."""
    cheapest, other = run([0.2, 0.4], spent=(10, 5, 100, 1.0)), run([0.3, 0.5], spent=(10, 5, 102, 1.04))
    assert equal_budget([[cheapest], [other]], "MACs") == 200
    assert [at_budget(each, "MACs", 200) for each in (cheapest, other)] == [0.4, 0.5]
    assert at_budget(other, "seconds", 2.0) == 0.5
    assert at_budget(run([0.3, 0.5], spent=(10, 5, 106, 1.0)), "MACs", 200) == 0.3


@pytest.mark.parametrize("measure", ["perplexity", "loss"])
def test_of_some_measures_small_values_reach_a_target(measure):
    found = run([9.0, 4.0, 2.0])
    for record in found.records:
        record["levels"] = {"all": {measure: record["levels"]["all"]["accuracy"]}}
    assert to_reach(found, "MACs", 4.0) == 200


def test_what_counts_is_the_mean_over_the_levels_or_one_level():
    found = run([0.0, 0.0])
    found.records[0]["levels"] = {"a": {"accuracy": 0.9}, "b": {"accuracy": 0.1}}
    found.records[1]["levels"] = {"a": {"accuracy": 0.8}, "b": {"accuracy": 0.6}}
    assert to_reach(found, "MACs", 0.7) == 200
    assert to_reach(found, "MACs", 0.7, "a") == 100
    assert to_reach(found, "MACs", 0.7, "b") is None
