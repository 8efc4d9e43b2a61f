"""`potluck inspect` as a user calls it."""

import json
import shutil
import sys
from xml.etree import ElementTree

import pytest
from federation import CONFIG

WATCHFUL = '''
from dataclasses import dataclass
import torch
from potluck.core.panels import Heatmap, Histogram
from potluck.methods.heterofl import HeteroFL

@dataclass(frozen=True)
class Watchful(HeteroFL):
    """HeteroFL that says how it is doing."""

    def diagnose(self, state, ctx, joined):
        return {
            "rank": {"conv[0]": 12.5 - ctx.round, "conv[1]": 1.25e-5},
            "lost": {level.name: {"conv[0]": level.ratio} for level in ctx.task.levels} | {"small": {}},
            "ranks": {"big": {"conv[0]": 8, "conv[1]": 123456}, "small": {"conv[0]": 4}},
            "broken": {"conv[0]": float("nan")},
            "most": ctx.round / 8,
        }

    def panels(self, state, ctx):
        return [Heatmap("the <state> & more", torch.eye(3)), Histogram("how often", torch.ones(4))]
'''


@pytest.fixture(scope="module")
def run(server, tmp_path_factory):
    """A run of HeteroFL, which records nothing."""
    directory = tmp_path_factory.mktemp("plain") / "run"
    assert server.run(directory).status == 0
    return directory


@pytest.fixture
def watched(potluck, tmp_path, monkeypatch):
    """A run of a method of one's own that records something."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "watchful_method.py").write_text(WATCHFUL)
    (tmp_path / "a.toml").write_text(CONFIG.replace('"heterofl"', '"watchful_method:Watchful"'))
    assert potluck("run", "a.toml", "--trust", "--out", "run").code == 0
    yield tmp_path / "run"
    sys.modules.pop("watchful_method", None)


def test_tables(potluck, watched):
    told = potluck("inspect", watched)
    assert told.code == 0, told
    rows = [line.split() for line in told.out.replace("│", " ").replace("┃", " ").splitlines()]
    assert "rank, by round" in told.out
    assert ["1", "2", "3"] in rows
    assert ["conv[0]", "12.5", "11.5", "10.5"] in rows
    assert ["conv[1]", "1.25e-5", "1.25e-5", "1.25e-5"] in rows
    assert "lost, after round 3" in told.words
    assert ["conv[0]", "1.00"] in rows
    assert ["conv[0]", "8", "4"] in rows
    assert ["conv[1]", "123456", "-"] in rows
    assert ["conv[0]", "nan", "nan", "nan"] in rows
    assert ["most", "0.00", "0.125", "0.250"] in rows
    assert max(map(len, told.out.splitlines())) <= 80


def test_for_other_programs(potluck, watched):
    told = potluck("inspect", watched, "--trust", "--json", "--picture", "run.svg")
    assert told.code == 0
    found = json.loads(told.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert (found["name"], found["method"], found["rounds"]) == ("small", "watchful_method:Watchful", 3)
    tables = {table["title"]: table for table in found["tables"]}
    assert tables["rank, by round"]["columns"] == ["1", "2", "3"]
    assert tables["rank, by round"]["rows"] == {"conv[0]": [12.5, 11.5, 10.5], "conv[1]": [1.25e-5] * 3}
    assert tables["broken, by round"]["rows"] == {"conv[0]": [None] * 3}
    assert "Drew run.svg." in told.err


def test_a_picture(potluck, watched, tmp_path):
    told = potluck("inspect", watched, "--trust", "--picture", tmp_path / "new" / "run.svg")
    assert told.code == 0, told
    assert f"Drew {tmp_path / 'new' / 'run.svg'}." in told.words
    root = ElementTree.parse(tmp_path / "new" / "run.svg").getroot()
    words = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for word in ("small (watchful_method:Watchful), 3 rounds", "rank", "most", "the <state> & more", "how often"):
        assert word in words
    assert "ranks: big" not in words  # it never changed


@pytest.mark.parametrize("path", ["run/metrics.jsonl", "run", "picture.png", "a.toml/x.svg", ""])
def test_a_bad_path_for_the_picture_loses_nothing(potluck, watched, tmp_path, path):
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    told = potluck("inspect", watched, "--trust", "--picture", path)
    assert told.code == 2
    assert "Traceback" not in told.words
    assert told.out == ""
    assert "svg" in told.err
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_a_method_that_records_nothing(potluck, run, tmp_path):
    told = potluck("inspect", run)
    assert told.code == 0
    assert told.words.startswith("heterofl has no diagnostics; scores are in ")
    assert "metrics.jsonl" in told.words.replace(" ", "")
    drew = potluck("inspect", run, "--picture", tmp_path / "run.svg")
    assert drew.code == 0
    assert "nothing to draw" in drew.words
    assert not (tmp_path / "run.svg").exists()
    assert json.loads(potluck("inspect", run, "--json").out)["tables"] == []


def test_records_of_before_methods_recorded_anything(potluck, run, tmp_path):
    old = shutil.copytree(run, tmp_path / "old")
    lines = [json.loads(line) for line in (old / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("method")
    (old / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shutil.rmtree(old / "checkpoint")  # it knows what the metrics were
    told = potluck("inspect", old)
    assert told.code == 0
    assert "has no diagnostics" in told.words


def test_what_is_no_run(potluck, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        told = potluck("inspect", path)
        assert told.code == 2
        assert f"{path} holds no run" in told.words


def test_help(potluck):
    told = potluck("inspect", "--help")
    assert told.code == 0
    assert "Usage: potluck inspect" in told.words
