"""`potluck compare` with folders of runs: groups, formats, and what cannot be compared."""

import csv
import io
import json
import shutil

import pytest


@pytest.fixture(scope="module")
def folder(server, tmp_path_factory):
    """Two rates with two seeds each."""
    folder = tmp_path_factory.mktemp("sweep")
    for lr in (0.01, 0.1):
        for seed in (0, 1):
            given = ["task.rounds=1", f"train.lr={lr}", f"seed={seed}", "data.validation=0.2"]
            assert (
                server.run(folder / f"{lr}-{seed}", *[word for each in given for word in ("--set", each)]).status == 0
            )
    return folder


def test_a_folder_is_compared_by_groups(potluck, folder):
    told = potluck("compare", folder)
    assert (told.code, told.err) == (0, "")
    for words in ("4 runs: accuracy after the last round", "lr=0.01", "lr=0.1", "±", "best", "at an equal cost"):
        assert words in told.words
    assert "took to get there" not in told.words


def test_a_target_has_a_table_of_its_own(potluck, folder):
    told = potluck("compare", folder, "--target", "0.99")
    assert "What the mean took to get there" in told.words
    assert "99.0 %" in told.words


def test_each_format_is_all_that_is_printed(potluck, folder):
    rows = json.loads(potluck("compare", folder, "--format", "json").out)
    assert [(row["group"], row["train.lr"], row["runs"]) for row in rows] == [("lr=0.01", 0.01, 2), ("lr=0.1", 0.1, 2)]
    same = list(csv.DictReader(io.StringIO(potluck("compare", folder, "--format", "csv").out)))
    assert [float(row["best mean"]) for row in same] == [row["best mean"] for row in rows]
    assert potluck("compare", folder, "--format", "latex").out.startswith(r"\begin{tabular}{lrr")
    assert potluck("compare", folder, "--format", "markdown").out.startswith("|  | runs |")


def test_unfinished_runs_in_a_mean_are_told(potluck, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    config = tmp_path / "copy" / "0.1-0" / "config.toml"
    config.write_text(config.read_text().replace("rounds = 1\n", "rounds = 3\n"))
    shutil.rmtree(config.parent / "checkpoint")
    told = potluck("compare", tmp_path / "copy", "--format", "csv", "--target", "0.5")
    assert told.code == 0
    assert "has 1 of 3 rounds" in potluck("compare", tmp_path / "copy", "--target", "0.5").err


def test_groups_that_differ_in_more_than_method_and_training_are_told_of(potluck, server, folder, tmp_path):
    other = tmp_path / "other"
    given = ["task.rounds=1", "train.lr=0.1", "fleet.clients=14", "data.validation=0.2"]
    assert server.run(other, *[word for each in given for word in ("--set", each)]).status == 0
    told = potluck("compare", folder, other, "--format", "json")
    assert told.code == 0
    first, *lines = told.err.splitlines()
    assert first.startswith("These runs differ in more than method, network and training")
    few, many = "clients=14, lr=0.1", "clients=28, lr=0.01 and clients=28, lr=0.1"
    assert f"  fleet.clients: 28 in {many}, 14 in {few}" in lines
    assert f"  seed: [0, 1] in {many}, 0 in {few}" in lines
    assert {row["fleet.clients"] for row in json.loads(told.out)} == {28, 14}


def test_a_run_that_has_just_begun_is_left_out_of_a_folder(potluck, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    begun = tmp_path / "copy" / "0.1-0"
    shutil.rmtree(begun / "checkpoint")
    (begun / "metrics.jsonl").unlink()
    told = potluck("compare", tmp_path / "copy")
    assert told.code == 0
    assert f"potluck: {begun} has no finished round yet; it is left out\n" in told.err
    assert "3 runs: accuracy" in told.words


def changed(folder, path, **changes):
    """A copy of a run with other records, which has no checkpoint to check them against."""
    copy = shutil.copytree(folder / "0.1-0", path)
    shutil.rmtree(copy / "checkpoint")
    (record,) = map(json.loads, (copy / "metrics.jsonl").read_text().splitlines())
    (copy / "metrics.jsonl").write_text(json.dumps({**record, **changes}) + "\n")
    return copy


def test_runs_of_different_tasks_are_refused(potluck, folder, tmp_path):
    words = changed(folder, tmp_path / "words", levels={"big": {"perplexity": 9.0}}, validation=None)
    told = potluck("compare", folder / "0.1-1", words, "--target", "0.5")
    assert told.code == 2
    assert "runs of different tasks cannot be compared: their measures are accuracy" in told.err
    assert f"perplexity ({words})" in told.err


def test_runs_without_scored_rounds_are_refused(potluck, folder, tmp_path):
    empty = changed(folder, tmp_path / "empty", levels={"big": {"accuracy": None}}, validation=None)
    told = potluck("compare", folder, empty, "--format", "csv")
    assert told.code == 2
    assert told.err == f"potluck: {empty} has no scored round yet\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere holds no run"),
        (["{folder}", "--target", "80"], "--target is 80, but accuracy is a share of 1: give 0.8 for 80 %"),
        (["{folder}", "--format", "xml"], "--format: there is no format 'xml'; there are csv, json, latex, markdown"),
        (["{folder}", "nowhere", "--target", "0.5"], "nowhere holds no run"),
    ],
)
def test_a_mistake_is_one_sentence(potluck, folder, arguments, says):
    told = potluck("compare", *(each.replace("{folder}", str(folder)) for each in arguments))
    assert told.code == 2
    assert told.err.startswith(f"potluck: {says}")
    assert told.err.count("\n") == 1
