"""A run as it is compared: its scores, what it spent, and the directories that hold runs."""

import json

import pytest
from made_runs import record, run

from potluck.core.errors import RunError
from potluck.series.played import Played, runs_in
from potluck.study.levels import MEAN

CONFIG = """\
name = "a"
[task]
rounds = 2
[fleet.levels]
all = 1.0
[method]
name = "fedavg"
[recipe]
"""


def written(folder, *records):
    """A directory with a run's config and metrics, and no weights."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    return folder


def test_a_run_is_read_with_its_settings_by_dotted_key(tmp_path):
    found = Played.of(written(tmp_path / "a", record(1, {"all": 0.25}), record(2, {"all": 0.5})))
    assert (found.settings["method.name"], found.settings["task.rounds"], found.rounds) == ("fedavg", 2, 2)
    assert (found.last("all"), found.measure, found.levels) == (0.5, "accuracy", ["all"])


def test_the_last_score_is_that_of_the_last_scored_round():
    assert run([0.2, 0.4, None]).last("all") == 0.4


def test_the_mean_is_over_the_levels_that_have_a_score():
    found = run([0.0])
    found.records[0]["levels"] = {"a": {"accuracy": 0.2}, "b": {"accuracy": 0.6}, "c": {"accuracy": None}}
    assert found.last(MEAN) == pytest.approx(0.4)
    assert found.last("c") is None
    assert found.last("nobody") is None


def test_another_measure_may_be_asked_for():
    found = run([0.5])
    found.records[0]["levels"]["all"]["local_accuracy"] = 0.75
    assert found.last("all", "local_accuracy") == 0.75
    assert found.last("all", "mae") is None


def test_what_is_spent_adds_up_round_by_round():
    found = run([0.1, 0.2, 0.3], spent=(10, 5, 100, 1.5))
    assert found.spent("bytes") == [15, 30, 45]
    assert found.spent("MACs") == [100, 200, 300]
    assert found.spent("seconds") == [1.5, 3.0, 4.5]


def test_the_best_round_is_chosen_on_some_examples_and_scored_on_the_rest():
    found = run([0.5, 0.6, 0.7])
    for each, chosen, rest in zip(found.records, (0.2, 0.9, 0.4), (0.3, 0.55, 0.95), strict=True):
        each |= {"validation": {"all": {"accuracy": chosen}}, "rest": {"all": {"accuracy": rest}}}
    assert (found.best_score("all"), found.best_score(MEAN), found.best_score("nobody")) == (0.55, 0.55, None)


def chosen_by(*rounds):
    """A run whose rounds were scored so, by level and measure; on all examples alike."""
    found = run([0.5] * len(rounds))
    for each, scores in zip(found.records, rounds, strict=True):
        each |= {"levels": scores, "validation": scores, "rest": scores}
    return found


def test_each_measure_chooses_a_round_of_its_own():
    found = chosen_by({"all": {"accuracy": 0.50, "perplexity": 4.5}}, {"all": {"accuracy": 0.51, "perplexity": 5.5}})
    assert (found.best_score("all"), found.best_score("all", "perplexity")) == (0.51, 4.5)
    assert found.best_score("all", "mae") is None


def test_each_level_and_the_mean_choose_a_round_of_their_own():
    found = chosen_by(
        {"a": {"accuracy": 0.99}, "e": {"accuracy": 0.20}}, {"a": {"accuracy": 0.90}, "e": {"accuracy": 0.95}}
    )
    assert (found.best_score("a"), found.best_score("e")) == (0.99, 0.95)
    assert found.best_score(MEAN) == pytest.approx(0.925)


def test_without_validation_examples_there_is_no_best_round():
    assert (run([0.5]).chooses, run([0.5]).best_score(MEAN)) == (False, None)


def test_a_run_without_a_scored_round_is_named():
    with pytest.raises(RunError, match="run has no scored round yet"):
        run([None, None]).last(MEAN)


def test_a_run_without_a_finished_round_is_named(tmp_path):
    with pytest.raises(RunError, match="has no finished round yet"):
        Played.of(written(tmp_path / "a"))


SCORED = {"all": {"accuracy": 0.5}}


@pytest.mark.parametrize(
    "change",
    [
        {"macs": "many"},
        {"bytes_up": None},
        {"seconds_training": True},
        {"levels": {}},
        {"levels": None},
        {"levels": {"all": 5}},
        {"levels": {"all": {"accuracy": 0.5}, "b": {"loss": 1.0}}},
        {"levels": {"all": {"accuracy": "good"}}},
        {"validation": SCORED},
        {"validation": SCORED, "rest": {"all": {"loss": "x"}}},
        {"validation": [1], "rest": SCORED},
    ],
)
def test_a_record_of_another_version_is_one_sentence(tmp_path, change):
    folder = written(tmp_path / "a", {**record(1, {"all": 0.5}), **change})
    with pytest.raises(RunError, match="round 1 that makes no sense: it is damaged, or of another version"):
        Played.of(folder)


def paths_in(*paths):
    found, left_out = runs_in(paths)
    assert left_out == []
    return [run.path for run in found]


def test_runs_are_found_in_folders_of_runs(tmp_path):
    one, other = (written(tmp_path / "sweep" / name, record(1, {"all": 0.5})) for name in ("b", "a"))
    (tmp_path / "sweep" / "notes").mkdir()
    assert paths_in(tmp_path / "sweep") == [other, one]
    assert paths_in(one, tmp_path / "sweep") == [one, other]
    with pytest.raises(RunError, match="nowhere holds no run"):
        runs_in([tmp_path / "nowhere"])


def test_a_run_is_no_folder_of_runs(tmp_path):
    outer = written(tmp_path / "outer", record(1, {"all": 0.5}))
    written(outer / "inner", record(1, {"all": 0.5}))
    assert paths_in(outer) == [outer]


def spoiled(folder):
    """A folder of runs: one is good, one has just begun, one has no score yet, and one is damaged."""
    good = written(folder / "good", record(1, {"all": 0.5}))
    (written(folder / "begun") / "metrics.jsonl").unlink()
    written(folder / "early", record(1, {"all": None}))
    (written(folder / "damaged") / "metrics.jsonl").write_text("{")
    return good


def test_runs_in_a_folder_that_have_no_score_are_left_out_and_told(tmp_path):
    good = spoiled(tmp_path / "sweep")
    found, left_out = runs_in([tmp_path / "sweep"])
    assert [run.path for run in found] == [good]
    begun, damaged, early = left_out
    assert begun == f"{tmp_path}/sweep/begun has no finished round yet; it is left out"
    assert "damaged/metrics.jsonl, line 1, is damaged" in damaged
    assert early == f"{tmp_path}/sweep/early has no scored round yet; it is left out"


def test_a_run_that_is_asked_for_by_its_path_is_not_left_out(tmp_path):
    spoiled(tmp_path / "sweep")
    with pytest.raises(RunError, match=r"begun has no finished round yet$"):
        runs_in([tmp_path / "sweep", tmp_path / "sweep" / "begun"])


def test_a_folder_without_a_run_that_can_be_compared_is_refused(tmp_path):
    written(tmp_path / "sweep" / "a")
    with pytest.raises(RunError, match=r"no run can be compared: .*a has no finished round yet"):
        runs_in([tmp_path / "sweep"])
