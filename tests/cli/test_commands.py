"""Every command, as it is typed."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import safetensors.torch
from federation import COMMAND, CONFIG, differences, outcome_of, rounds_recorded

from potluck import methods
from potluck.contract import CHECKS
from potluck.models.catalogue import find_model

NAMES = ("demo", "run", "costs", "plan", "ranks", "inspect", "compare", "methods", "check", "export")


@pytest.fixture(scope="module")
def unfinished(server, reference, tmp_path_factory):
    """A run that was killed in its last round."""
    directory = tmp_path_factory.mktemp("unfinished") / "run"
    _, moments = reference
    last = max(number for number, moment in enumerate(moments) if moment == "open /metrics.jsonl")
    server.run(directory, end="kill", at=last)
    assert rounds_recorded(directory) == 2
    return directory


def network(ratio):
    return find_model("heterofl-cnn")(ratio, shape=(1, 8, 8), classes=10, hidden=(4, 8, 8, 8))


@pytest.mark.parametrize("command", [COMMAND, [str(Path(sys.executable).with_name("potluck"))]])
def test_help_of_the_real_command(command):
    told = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
    assert told.returncode == 0
    for name in NAMES:
        assert f" {name} " in told.stdout
    assert told.stderr == ""


@pytest.mark.parametrize("name", NAMES)
def test_help_of_every_command(potluck, name):
    told = potluck(name, "--help")
    assert told.code == 0
    assert f"Usage: potluck {name}" in told.words


def test_run_says_where_it_saved_what(potluck, config, reference, tmp_path):
    told = potluck("run", config, "--out", tmp_path / "run")
    assert told.code == 0
    assert f"Saved in {tmp_path / 'run'}" in told.words
    assert told.err == ""
    expected, _ = reference
    assert not differences(expected, outcome_of(tmp_path / "run"))


def test_run_takes_settings_and_chooses_a_directory(potluck, config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert potluck("run", config, "--set", "task.rounds=1", "--set", "train.lr=0.125", "--set", "name=mine").code == 0
    saved = tomllib.loads((tmp_path / "runs" / "mine" / "config.toml").read_text())
    assert (saved["task"]["rounds"], saved["train"]["lr"]) == (1, 0.125)


def test_run_resumes(potluck, config, reference, unfinished, tmp_path):
    directory = shutil.copytree(unfinished, tmp_path / "run")
    refused = potluck("run", config, "--out", directory)
    assert refused.code == 2
    assert "--resume" in refused.words
    assert potluck("run", config, "--out", directory, "--resume").code == 0
    expected, _ = reference
    assert not differences(expected, outcome_of(directory))


def test_costs_of_heterofls_own_network(potluck, tmp_path):
    """The sizes that the paper prints for its CNN, at its five levels."""
    path = tmp_path / "cnn.toml"
    levels = "levels = { a = 1.0, b = 0.5, c = 0.25, d = 0.125, e = 0.0625 }"
    text = CONFIG.replace(", hidden = [4, 8, 8, 8]", "").replace("levels = { big = 1.0, small = 0.5 }", levels)
    path.write_text(text)
    told = potluck("costs", path, "--json")
    assert told.code == 0
    rows = json.loads(told.out)
    assert [row["level"] for row in rows] == list("abcde")
    assert [row["ratio"] for row in rows] == [1.0, 0.5, 0.25, 0.125, 0.0625]
    assert [row["parameters"] for row in rows] == [1_556_874, 391_370, 98_922, 25_274, 6_594]
    for field in ("parameters", "macs", "bytes_down", "bytes_up", "peak_training_memory"):
        values = [row[field] for row in rows]
        assert values == sorted(values, reverse=True), field
        assert min(values) > 0, field
    for row in rows:  # float32 weights each way; memory for weights, gradients and momentum at least
        assert row["bytes_down"] == row["bytes_up"] == 4 * row["parameters"]
        assert row["peak_training_memory"] >= 3 * 4 * row["parameters"]


def test_macs_worked_out_by_hand(potluck, config):
    rows = json.loads(potluck("costs", config, "--json").out)
    # 3x3 convolutions on 8x8, 4x4, 2x2 and 1x1 pixels, then the head
    big = 9 * (64 * 1 * 4 + 16 * 4 * 8 + 4 * 8 * 8 + 1 * 8 * 8) + 8 * 10
    small = 9 * (64 * 1 * 2 + 16 * 2 * 4 + 4 * 4 * 4 + 1 * 4 * 4) + 4 * 10
    assert [row["macs"] for row in rows] == [big, small]


def test_costs_as_a_table(potluck, config):
    told = potluck("costs", config)
    assert told.code == 0
    for word in ("big", "small", "parameters", "1,650", "470", "bytes down", "bytes up", "memory"):
        assert word in told.words


def test_costs_takes_settings(potluck, config):
    rows = json.loads(potluck("costs", config, "--json", "--set", "fleet.levels={ only = 0.5 }").out)
    assert [(row["level"], row["ratio"]) for row in rows] == [("only", 0.5)]


def test_compare_puts_runs_side_by_side(potluck, finished, unfinished):
    told = potluck("compare", finished, unfinished)
    assert told.code == 0
    last = json.loads((finished / "metrics.jsonl").read_text().splitlines()[-1])
    assert f"{100 * last['levels']['big']['accuracy']:.1f}" in told.words


def test_a_comparison_can_be_read_in_eighty_columns(potluck, finished, monkeypatch):
    """The words above the figures are all there, not cut off."""
    monkeypatch.chdir(finished.parent)
    shown = potluck("compare", "run").out
    assert max(map(len, shown.splitlines())) <= 80
    for word in ("accuracy", "parameters", "MACs", "bytes", "failures", "rounds", "seconds"):
        assert word in shown
    assert "…" not in shown


def test_methods_lists_every_method_with_its_paper_and_a_sentence(potluck):
    told = potluck("methods")
    assert told.code == 0
    for name in methods.names():
        found = methods.find(name)
        assert name in told.words
        assert found.paper.split()[0] in told.words
        assert found.__doc__.split()[0] in told.words


@pytest.mark.parametrize(("level", "ratio"), [("big", 1.0), ("small", 0.5)])
def test_export_of_a_finished_run(potluck, finished, tmp_path, level, ratio):
    out = tmp_path / "new" / "net.safetensors"
    told = potluck("export", finished, "--level", level, "--out", out)
    assert told.code == 0
    assert str(out) in told.words
    weights = safetensors.torch.load_file(out)
    network(ratio).load_state_dict(weights, strict=True)
    saved = safetensors.torch.load_file(finished / "models" / f"{level}.safetensors")
    assert all(weights[name].equal(tensor) for name, tensor in saved.items())


def test_export_of_an_unfinished_run_gives_its_latest(potluck, config, unfinished, tmp_path):
    """What an undisturbed run of as many rounds would have exported."""
    told = potluck("export", unfinished, "--level", "small", "--out", tmp_path / "net.safetensors")
    assert told.code == 0
    assert "2 rounds" in told.words
    assert potluck("run", config, "--set", "task.rounds=2", "--out", tmp_path / "two").code == 0
    weights = safetensors.torch.load_file(tmp_path / "net.safetensors")
    expected = safetensors.torch.load_file(tmp_path / "two" / "models" / "small.safetensors")
    assert set(weights) == set(expected)
    assert all(weights[name].equal(tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("level", ["smal", "", "../final", "."])
def test_export_of_an_unknown_level(potluck, finished, unfinished, tmp_path, level):
    for directory in (finished, unfinished):
        told = potluck("export", directory, "--level", level, "--out", tmp_path / "net.safetensors")
        assert told.code == 2
        assert f"has no level '{level}'; it has big, small" in told.words
        assert not (tmp_path / "net.safetensors").exists()


GOOD = '''
from dataclasses import dataclass
from potluck.methods.fedavg import FedAvg

@dataclass(frozen=True)
class Mine(FedAvg):
    """FedAvg under another name."""

@dataclass(frozen=True)
class Stubborn(FedAvg):
    """Learns nothing."""

    def aggregate(self, state, updates, ctx):
        for _ in updates:
            pass
        return state

@dataclass(frozen=True)
class Needy(FedAvg):
    """Has a setting without a default."""

    rate: float = None

    def __init__(self, rate):
        object.__setattr__(self, "rate", rate)

@dataclass(frozen=True)
class Bracketed(FedAvg):
    """Fails in words that look like markup."""

    def init(self, ctx):
        raise ValueError("[/oops] and [red]more[/red]")
'''


@pytest.fixture
def own_methods(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "methods_of_my_own.py").write_text(GOOD)
    yield "methods_of_my_own"
    sys.modules.pop("methods_of_my_own", None)


def test_check_of_a_good_method(potluck, own_methods):
    told = potluck("check", f"{own_methods}:Mine")
    assert told.code == 0, told
    assert "fails" not in told.words
    assert "meets all" in told.words


@pytest.fixture
def quick(monkeypatch):
    """Without the check that starts worker processes, for methods that fail others."""
    monkeypatch.delitem(CHECKS, "engines agree")


@pytest.mark.usefixtures("quick")
def test_check_of_a_broken_method_says_what_broke(potluck, own_methods):
    told = potluck("check", f"{own_methods}:Stubborn")
    assert told.code == 2
    assert "fails training changes the state: after a real round the state is what it was" in told.words
    assert "holds its payload survives the wire" in told.words
    assert f"{own_methods}:Stubborn breaks 2 of" in told.words  # that, and being FedAvg with one level
    assert "Traceback" not in told.words


@pytest.mark.usefixtures("quick")
def test_check_shows_an_error_as_it_is(potluck, own_methods):
    told = potluck("check", f"{own_methods}:Bracketed")
    assert told.code == 2
    assert "ValueError: [/oops] and [red]more[/red]" in told.words


def test_check_of_a_method_that_needs_settings(potluck, own_methods):
    told = potluck("check", f"{own_methods}:Needy")
    assert told.code == 2
    assert "rate" in told.words
    assert "Traceback" not in told.words


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("heterfl", "did you mean 'heterofl'?"),
        ("methods_of_my_own:Mein", "cannot load method"),
        ("methods_of_my_own", "there is no method"),
        ("no_such_module:Mine", "cannot load method"),
        ("methods_of_my_own:dataclass", "is not a subclass of potluck.Method"),
    ],
)
def test_check_of_what_is_no_method(potluck, own_methods, name, says):
    told = potluck("check", name)
    assert told.code == 2
    assert says in told.words


def test_check_of_a_module_with_a_slip_in_it(potluck, own_methods, tmp_path):
    (tmp_path / "slip.py").write_text("def broken(:\n")
    told = potluck("check", "slip:Mine")
    assert told.code == 2
    assert "slip" in told.words
    assert "Traceback" not in told.words
