"""`potluck reproduce` on a preset that takes no time."""

import json
import shutil
import tomllib

import pytest

from potluck.series.preset import read_file

TINY = """\
paper = "Nobody et al., A Table, Nowhere 2026"
settings = {}

[[presets]]
name = "tiny"
title = "Table 0, digits"
set.task = { model = { name = "heterofl-cnn", hidden = [4, 4, 4, 4] }, rounds = 20, evaluate_every = 10 }
set.data.source = "digits"
set.fleet = { clients = 14, cohort = 3, levels = { big = 1.0, small = 0.5 } }
set.train = { lr = 0.05, epochs = 1, schedule = "multistep", milestones = [10] }
set.engine.name = "serial"
cases.iid.data.partition = "iid"
cases.skewed.data.partition = { name = "dirichlet", alpha = 1.0 }

[[presets.rows]]
name = "heterofl"
set.method = { name = "heterofl" }
paper.iid = { big = 90.0, mean = 85.5 }

[[presets.rows]]
name = "mnist"
set.method = { name = "fedavg" }
set.data.source = "mnist"
"""


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    found = {preset.name: preset for preset in read_file(TINY)}
    monkeypatch.setattr("potluck.series.preset.presets", lambda: found)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.whole
def test_a_reproduction_records_what_it_is_and_ends_with_the_papers_numbers_beside_ours(potluck, tmp_path):
    arguments = ["reproduce", "tiny", "--rows", "heterofl.iid", "--scale", "0.1", "--seeds", "0-1", "--jobs", "2"]
    told = potluck(*arguments, "--format", "json")
    assert told.code == 0, told
    folder = tmp_path / "results" / "tiny"
    for seed in (0, 1):
        config = tomllib.loads((folder / f"heterofl.iid.seed{seed}.rounds=0.1" / "config.toml").read_text())
        assert config["series"] == {"preset": "tiny", "row": "heterofl", "case": "iid", "scale": {"rounds": 0.1}}
        assert (config["seed"], config["task"]["rounds"], config["train"]["milestones"]) == (seed, 2, [1])
        assert config["data"]["validation"] == 0.2
    big, mean = json.loads(told.out)
    assert (big["score"], mean["score"], big["paper"], mean["paper"], big["seeds"]) == ("big", "mean", 90.0, 85.5, 2)
    for row in (big, mean):
        assert row["difference"] == pytest.approx(row["last"] - row["paper"])
        assert row["last deviation"] is not None
        assert 0 < row["best"] < 100
    shutil.rmtree(folder / "heterofl.iid.seed1.rounds=0.1" / "models")
    again = potluck(*arguments)
    assert again.code == 0
    assert again.err == "2 of 2 runs are finished already.\n"
    for header in ("last round", "best round", "paper", "difference", "seeds", "90.00", f"{big['difference']:+.2f}"):
        assert header in again.words


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tinyy"], "there is no preset 'tinyy'; did you mean 'tiny'?"),
        (["tiny", "--rows", "heterfl"], "there is no row of tiny 'heterfl'; did you mean 'heterofl'?"),
        (["tiny", "--rows", "heterofl.iidd"], "did you mean 'heterofl.iid'?"),
        (["tiny", "--scale", "0"], "scale has rounds 0, but it should be a share above 0 and at most 1"),
        (["tiny", "--scale", "1.5"], "scale has rounds 1.5"),
        (["tiny", "--scale", "depth=0.5"], "it can cut rounds, clients, width"),
        (["tiny", "--seeds", "x"], "--seeds is 'x', but it should be different whole numbers, such as 0-2 or 0,3,5"),
        (["tiny", "--target", "0.8"], "--target is 0.8, but these rows of tiny have no costs up to a target"),
        (["tiny", "--jobs", "0"], "--jobs is 0, but it should be 1 or more, the number of runs at a time"),
        (["tiny", "--format", "xml"], "there is no format 'xml'"),
        (["tiny", "--rows", "mnist.iid", "--data-dir", "."], "run `potluck data fetch mnist`"),
        (["tiny", "--data-dir", "nowhere"], "the data folder nowhere does not exist"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_runs(potluck, tmp_path, arguments, says):
    told = potluck("reproduce", *arguments)
    assert told.code == 2, told
    assert told.err.startswith("potluck: ")
    assert told.err.count("\n") == 1
    assert says in told.err
    assert list(tmp_path.iterdir()) == []
