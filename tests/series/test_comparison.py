"""Tables of groups: means, deviations, equal budgets and targets."""

import csv
import io
import json
import statistics

import pytest
from made_runs import run

from potluck.core.errors import ConfigError, RunError
from potluck.series.comparison import Shown, comparison_sheet, doubts, require_target, with_deviation
from potluck.series.text import as_csv, as_json

SHOWN = Shown(lambda amount: f"{amount:g}M", lambda amount: f"{amount:g} KiB")
RUNS = [
    run([0.2, 0.5], "a0", train__lr=0.1),
    run([0.3, 0.7], "a1", train__lr=0.1, seed=1),
    run([0.4], "b0", train__lr=0.2),
]


def sheet(target=None, part=None, runs=RUNS):
    return comparison_sheet(runs, target, SHOWN, part)


def test_a_row_has_the_mean_and_the_sample_deviation_of_its_runs():
    found = sheet(part="scores")
    deviation = 100 * statistics.stdev([0.5, 0.7])
    assert found.headers == ("", "runs", "all", "mean")
    assert found.rows[0] == ("lr=0.1", "2", f"60.0 ± {deviation:.1f} %", f"60.0 ± {deviation:.1f} %")
    assert found.rows[1] == ("lr=0.2", "1", "40.0 %", "40.0 %")


def test_an_equal_cost_is_what_the_cheapest_group_took():
    found = sheet(part="equal")
    assert found.headers == ("", "runs", "at 15 KiB", "at 100M MACs", "at 1 s")
    assert [row[2] for row in found.rows] == ["25.0 ± 7.1 %", "40.0 %"]


def test_all_runs_of_the_cheapest_group_count_though_their_levels_were_drawn_otherwise():
    drawn = [
        run([score], name, (10, 5, macs, 1.0), seed=macs) for name, score, macs in (("a", 0.2, 100), ("b", 0.4, 130))
    ]
    assert [row[2:] for row in sheet(part="equal", runs=drawn).rows] == [("30.0 ± 14.1 %",) * 3]


def test_a_time_that_rounds_to_nothing_is_told_with_two_digits():
    quick = [run([0.2], name, spent=(10, 5, 100, 0.0317), train__lr=rate) for name, rate in (("a", 0.1), ("b", 0.2))]
    assert sheet(part="equal", runs=quick).headers[-1] == "at 0.032 s"
    assert SHOWN.spent("seconds", 61.7) == "62 s"


def test_a_mean_of_fewer_runs_says_so():
    late = run([None, 0.7], "a1", train__lr=0.1, seed=1)
    assert [row[2] for row in sheet(part="equal", runs=[RUNS[0], late, RUNS[2]]).rows] == ["20.0 % (1 of 2)", "40.0 %"]


def test_the_cost_of_a_target_says_how_many_reached_it():
    found = sheet(0.6, "target")
    assert found.headers[2:] == ("bytes to 60.0 %", "MACs to 60.0 %", "seconds to 60.0 %")
    assert found.rows[0][2:] == ("30 KiB (1 of 2)", "200M (1 of 2)", "2 s (1 of 2)")
    assert found.rows[1][2:] == ("-", "-", "-")


def test_numbers_have_full_precision_in_csv_and_json():
    found = sheet(0.6)
    (first, second), rows = found.numbers, list(csv.DictReader(io.StringIO(as_csv(found))))
    assert (first["group"], first["train.lr"], first["measure"], first["runs"]) == ("lr=0.1", 0.1, "accuracy", 2)
    assert first["last all"] == statistics.fmean([0.5, 0.7])
    assert first["last all deviation"] == statistics.stdev([0.5, 0.7])
    assert (first["bytes to target"], second["bytes to target"]) == (30.0, None)
    assert (first["bytes to target runs"], second["bytes to target runs"], first["at equal bytes runs"]) == (1, 0, 2)
    assert [first[key] for key in ("target", "equal bytes", "equal MACs", "equal seconds")] == [0.6, 15.0, 100.0, 1.0]
    assert (first["MACs in all"], second["MACs in all"]) == (200.0, 100.0)
    assert json.loads(as_json(found)) == [first, second]
    assert float(rows[0]["last all deviation"]) == first["last all deviation"]
    assert rows[1]["last all deviation"] == ""


def test_the_best_round_has_a_column_only_where_examples_choose_it():
    chosen = run([0.5, 0.6], "c")
    for each, rest in zip(chosen.records, (0.25, 0.35), strict=True):
        each |= {"validation": {"all": {"accuracy": 1 - rest}}, "rest": {"all": {"accuracy": rest}}}
    found = sheet(part="scores", runs=[chosen])
    assert dict(zip(found.headers, found.rows[0], strict=True))["best"] == "25.0 %"
    assert "best" not in sheet(part="scores").headers
    both = sheet(part="scores", runs=[chosen, RUNS[2]])
    assert [row[both.headers.index("best")] for row in both.rows] == ["25.0 %", "-"]


@pytest.mark.parametrize(
    ("target", "measure"), [("nan", "perplexity"), ("inf", "loss"), ("80", "accuracy"), ("-0.1", "local_accuracy")]
)
def test_a_target_that_no_score_can_be_is_refused(target, measure):
    with pytest.raises(ConfigError, match=f"--target is {target}, "):
        require_target(float(target), measure)


def test_runs_of_different_tasks_are_refused_with_a_run_of_each():
    other = run([0.5], "words")
    other.records[0]["levels"] = {"all": {"perplexity": 9.0}}
    with pytest.raises(RunError, match=r"different tasks .* accuracy \(a0\), perplexity \(words\)"):
        sheet(runs=[*RUNS, other])


def test_runs_without_scored_rounds_are_refused():
    with pytest.raises(RunError, match="empty has no scored round yet"):
        sheet(runs=[*RUNS, run([None], "empty")])


@pytest.mark.parametrize(
    ("mean", "deviation", "both"),
    [("91.2 %", "0.3 %", "91.2 ± 0.3 %"), ("1.2 GiB", "30 MiB", "1.2 GiB ± 30 MiB"), ("1.6M", "200K", "1.6M ± 200K")],
)
def test_a_unit_that_both_have_stands_once(mean, deviation, both):
    assert with_deviation(mean, deviation) == both


def test_runs_that_one_mean_should_not_hold_are_told():
    unfinished = run([0.5], "half", seed=1, task__rounds=2)
    again = run([0.5, 0.5], "again", task__rounds=2)
    found = doubts([run([0.5, 0.5], "whole", task__rounds=2), unfinished, again])
    assert found == [
        "half has 1 of 2 rounds",
        "whole and again are one experiment with one seed, and all count in the mean",
    ]
    assert doubts(RUNS) == []
