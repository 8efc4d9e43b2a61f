"""0 fine, 2 the user's mistake in one sentence, 1 a fault of ours, 130 interrupted."""

import subprocess

import pytest
from federation import COMMAND, CONFIG, start

from potluck.methods.heterofl import HeteroFL


def one_sentence(told):
    """A mistake is told on stderr, in one line that is not a traceback."""
    lines = told.err.strip().splitlines()
    return told.code == 2 and len(lines) == 1 and lines[0].startswith("potluck: ") and "Traceback" not in told.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "nowhere.toml"], "cannot read nowhere.toml"),
        (["run", "{config}", "--set", "train.lrr=1"], "did you mean 'lr'?"),
        (["run", "{config}", "--set", "train.lr"], "expected key=value"),
        (["run", "{config}", "--set", "train.lr=fast"], "lr is 'fast'"),
        (["run", "{config}", "--set", "train.lr=2020-01-01"], "lr"),
        (["run", "{config}", "--set", "fleet.levels.big=1.5"], "levels.big is 1.5"),
        (["run", "{config}", "--set", "fleet.levels.big=0"], "levels.big is 0"),
        (["run", "{config}", "--set", "fleet.clients=2000"], "at most 1442 clients"),
        (["run", "{config}", "--set", "method.name=heterfl"], "did you mean 'heterofl'?"),
        (["run", "{config}", "--set", "task.model.name=heterofl-cn"], "did you mean 'heterofl-cnn'?"),
        (["run", "{config}", "--set", "task.model.classes=7"], "has 7 outputs"),
        (["run", "{config}", "--set", "engine.name=serail"], "did you mean 'serial'?"),
        (["run", "{config}", "--out", "{config}/run"], "cannot write to"),
        (["run", "{config}", "--out", "/proc/potluck"], "cannot write to /proc/potluck"),
        (["costs", "nowhere.toml"], "cannot read nowhere.toml"),
        (["compare", "nowhere"], "nowhere holds no run"),
        (["compare", "{config}"], "small.toml is a config, not a run; `potluck run "),
        (["export", "{config}", "--level", "big", "--out", "a.safetensors"], "is a config, not a run"),
        (["inspect", "{config}"], "is a config, not a run"),
        (["run", "{config}", "--set", "train.schedule=multistep"], "milestones is empty"),
        (["export", "nowhere", "--level", "big", "--out", "a.safetensors"], "nowhere"),
        (["check", "heterfl"], "did you mean 'heterofl'?"),
    ],
)
def test_a_mistake_is_one_sentence(potluck, config, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    told = potluck(*(argument.replace("{config}", str(config)) for argument in arguments))
    assert one_sentence(told), told
    assert says in told.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [b"", b"x" * 100])
def test_a_damaged_checkpoint_is_one_sentence(potluck, config, tmp_path, damage):
    assert potluck("run", config, "--out", tmp_path / "run", "--set", "task.rounds=1").code == 0
    checkpoint = tmp_path / "run" / "checkpoint" / "latest.safetensors"
    checkpoint.write_bytes(damage)
    told = potluck("run", config, "--out", tmp_path / "run", "--set", "task.rounds=1", "--resume")
    assert one_sentence(told), told
    assert str(checkpoint) in told.err


def test_another_config_is_one_sentence(potluck, config, tmp_path):
    assert potluck("run", config, "--out", tmp_path / "run", "--set", "task.rounds=1").code == 0
    told = potluck("run", config, "--out", tmp_path / "run", "--resume", "--set", "train.lr=0.25")
    assert one_sentence(told), told
    assert "train.lr (0.05 there, 0.25 here)" in told.err
    assert "recipe.kind" not in told.err


def test_an_export_that_cannot_be_written_is_one_sentence(potluck, config, tmp_path):
    assert potluck("run", config, "--out", tmp_path / "run", "--set", "task.rounds=1").code == 0
    told = potluck("export", tmp_path / "run", "--level", "big", "--out", config / "net.safetensors")
    assert one_sentence(told), told
    assert f"cannot write {config / 'net.safetensors'}" in told.err


@pytest.mark.parametrize(
    "arguments", [["fly"], ["run"], ["costs", "a", "--jsn"], ["export", "a"], ["demo", "--seed", "x"]]
)
def test_what_no_command_understands(potluck, arguments):
    told = potluck(*arguments)
    assert told.code == 2
    assert "Usage: potluck" in told.words
    assert "Traceback" not in told.words


def test_no_arguments_show_the_help(potluck):
    told = potluck()
    assert "demo" in told.words
    assert "Traceback" not in told.words


def test_a_fault_of_ours_is_owned_up_to(potluck, config, monkeypatch):
    def fail(*arguments):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(HeteroFL, "init", fail)
    told = potluck("costs", config)
    assert told.code == 1
    assert "ZeroDivisionError: ours" in told.err
    assert "a fault in Potluck" in told.err


def test_a_fault_of_ours_in_a_run_leaves_it_resumable(potluck, config, tmp_path, monkeypatch):
    aggregate, rounds = HeteroFL.aggregate, []

    def fail_in_the_second_round(self, state, updates, ctx):
        rounds.append(ctx.round)
        return aggregate(self, state, updates, ctx) if len(rounds) < 2 else 1 / 0

    with monkeypatch.context() as patched:
        patched.setattr(HeteroFL, "aggregate", fail_in_the_second_round)
        assert potluck("run", config, "--out", tmp_path / "run").code == 1
    assert potluck("run", config, "--out", tmp_path / "run", "--resume").code == 0


def test_ctrl_c_is_130(potluck, config, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(HeteroFL, "init", interrupt)
    told = potluck("costs", config)
    assert told.code == 130
    assert "Traceback" not in told.words


def test_a_users_own_source_and_network(potluck, tmp_path, monkeypatch):
    """Modules beside the working directory can be named in a config."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_parts.py").write_text(
        "import torch, potluck\n"
        "def data(*, count=60):\n"
        "    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(0))\n"
        "    y = (x[:, 0] > 0).long()\n"
        "    return potluck.Dataset(potluck.Arrays(x, y), potluck.Arrays(x, y), 2)\n"
        "def net(width, *, units=8):\n"
        "    n = int(units * width)\n"
        "    return torch.nn.Sequential(torch.nn.Linear(4, n), torch.nn.ReLU(), torch.nn.Linear(n, 2))\n"
    )
    text = CONFIG.replace("heterofl-cnn", "own_parts:net").replace("hidden = [4, 8, 8, 8]", "units = 12")
    (tmp_path / "own.toml").write_text(text.replace('"digits"', '"own_parts:data"'))
    assert potluck("run", "own.toml", "--trust", "--out", "run").code == 0
    assert (tmp_path / "run" / "models" / "small.safetensors").exists()


def test_exit_codes_of_the_real_command(config, tmp_path):
    process = start("run", config, "--set", "train.lr=fast", "--out", tmp_path / "run")
    _, err = process.communicate()
    assert process.returncode == 2
    assert err.count("\n") == 1
    assert "lr is 'fast'" in err


def test_a_reader_that_has_seen_enough():
    """As in `potluck methods | head -1`."""
    process = subprocess.Popen([*COMMAND, "methods"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0
    assert err == ""
