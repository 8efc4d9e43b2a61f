"""`potluck compare` says which runs cannot be compared, and `--resume` what there is to resume."""

import json
import shutil

import pytest


@pytest.fixture(scope="module")
def compared(server, tmp_path_factory):
    """Runs of two rounds, by what differs."""
    folder = tmp_path_factory.mktemp("compared")
    changes = {
        "run": [],
        "again": ["engine.name=serial"],
        "method": ["method.name=fedrolex"],
        "rate": ["train.lr=0.1"],
        "rounds": ["task.rounds=1"],
        "test": ["data.test_examples=50"],
        "partition": ["data.partition.name=dirichlet", "data.partition.alpha=0.3"],
        "fleet": ["fleet.clients=27", "fleet.levels.small=0.25"],
        "seed": ["seed=7"],
    }
    for name, overrides in changes.items():
        given = [word for each in ["task.rounds=2", "train.epochs=1", *overrides] for word in ("--set", each)]
        assert server.run(folder / name, *given).status == 0, name
    return folder


def warned(potluck, folder, *names):
    told = potluck("compare", *(folder / name for name in names))
    assert told.code == 0
    assert "Comparison" in told.words
    return told.err


@pytest.mark.parametrize("other", ["again", "method", "rate"])
def test_runs_that_can_be_compared_are_not_warned_of(potluck, compared, other):
    assert warned(potluck, compared, "run", other) == ""


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ("rounds", ["rounds: 2 in {run}, 1 in {other}"]),
        ("test", ["data.test_examples: not set in {run}, 50 in {other}"]),
        ("partition", ['data.partition.name: "iid" in {run}, "dirichlet" in {other}', "data.partition.alpha"]),
        ("fleet", ["fleet.clients: 28 in {run}, 27 in {other}", "fleet.levels.small: 0.5 in {run}, 0.25 in {other}"]),
    ],
)
def test_others_are_with_all_that_differs(potluck, compared, other, says):
    err = warned(potluck, compared, "run", other)
    assert err.startswith("These runs differ in more than method, network and training")
    for line in says:
        assert line.format(run=compared / "run", other=compared / other) in err


def test_runs_that_differ_in_their_seed_alone_are_one_group(potluck, compared):
    told = potluck("compare", compared / "run", compared / "seed")
    assert (told.code, told.err) == (0, "")
    assert "2 runs: accuracy after the last round" in told.words
    assert "±" in told.words


def test_of_several_runs_those_that_agree_are_named_together(potluck, compared):
    err = warned(potluck, compared, "run", "rounds", "rate")
    run, rounds, rate = (compared / name for name in ("run", "rounds", "rate"))
    assert f"  rounds: 2 in {run} and {rate}, 1 in {rounds}" in err.splitlines()


# ---- --resume ----


def test_a_run_that_was_not_there_begins_and_says_so(potluck, config, tmp_path):
    told = potluck("run", config, "--out", tmp_path / "run", "--resume", "--set", "task.rounds=1")
    assert told.code == 0
    assert f"There is nothing to resume: {tmp_path / 'run'} holds no run." in told.words


def test_a_finished_run_says_so(potluck, config, tmp_path):
    short = ["run", config, "--out", tmp_path / "run", "--set", "task.rounds=1"]
    assert potluck(*short).code == 0
    told = potluck(*short, "--resume")
    assert told.code == 0
    assert "1 of 1 rounds are done already; nothing is trained." in told.words
    assert "There is nothing to resume" not in told.words


def test_a_finished_run_is_extended(potluck, config, tmp_path):
    assert potluck("run", config, "--out", tmp_path / "run", "--set", "task.rounds=1").code == 0
    told = potluck("run", config, "--out", tmp_path / "run", "--resume", "--set", "task.rounds=2")
    assert told.code == 0, told
    assert "already" not in told.words
    assert "rounds │ 2" in told.words


def test_a_round_whose_levels_have_no_accuracy_is_named(potluck, unsealed):
    metrics = unsealed / "metrics.jsonl"
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    del records[0]["levels"]["big"]["accuracy"]
    metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    told = potluck("compare", unsealed)
    assert told.code == 2, told
    assert "has a record of round 1 that makes no sense" in told.err


@pytest.fixture
def unsealed(compared, tmp_path):
    """A run that has no checkpoint to check its metrics against."""
    directory = shutil.copytree(compared / "run", tmp_path / "run")
    shutil.rmtree(directory / "checkpoint")
    return directory
