"""A config or a run of somebody else runs no code, unless the user says --trust or typed its name."""

import shutil
import sys
from pathlib import Path

import pytest
from federation import CONFIG

from potluck.core.checkpoint import read_words
from potluck.study import record

MARK = "ran.txt"
EVIL = f"""\
from pathlib import Path
Path({MARK!r}).write_text("it ran")
class X: pass
def net(width): pass
"""
PLACES = {
    "method": ('name = "heterofl"', 'name = "evil_parts:X"'),
    "source": ('source = "digits"', 'source = "evil_parts:X"'),
    "model": ('name = "heterofl-cnn"', 'name = "evil_parts:X"'),
    "proxy": ('source = "digits"', 'source = "digits"\nproxy = "evil_parts:X"'),
    "optimizer": ("[train]\n", '[train]\noptimizer = "evil_parts:X"\n'),
}
SHELL = '[data.source]\nname = "subprocess:run"\nargs = "touch ran.txt"\nshell = true\n'


@pytest.fixture(scope="module")
def finished(server, tmp_path_factory):
    directory = tmp_path_factory.mktemp("finished") / "run"
    assert server.run(directory, "--set", "task.rounds=1").status == 0
    return directory


@pytest.fixture
def strange(finished, tmp_path, monkeypatch):
    """A copied run in the working directory, beside a module that leaves a mark when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    (tmp_path / "evil_parts.py").write_text(EVIL)
    monkeypatch.setattr(record, "identity", sealed_by_the_stranger)
    yield shutil.copytree(finished, tmp_path / "run")
    sys.modules.pop("evil_parts", None)


def sealed_by_the_stranger(config):
    """Who writes a config can write a checkpoint to go with it: digests keep files together, not strangers out."""
    return read_words(Path("run/checkpoint/latest.safetensors"))["run"]


def changed(run, old, new):
    """Change the run's config, and take away the models that would be exported without looking at it."""
    text = (run / "config.toml").read_text()
    assert old in text
    (run / "config.toml").write_text(text.replace(old, new))
    shutil.rmtree(run / "models", ignore_errors=True)


COMMANDS = [
    ["export", "run", "--ratio", "0.5", "--out", "a.safetensors"],
    ["export", "run", "--level", "small", "--out", "a.safetensors"],
    ["inspect", "run", "--picture", "a.svg"],
    ["ranks", "run", "--levels", "0.9"],
    ["costs", "run/config.toml", "--no-measure"],
    ["partition", "run/config.toml"],
    ["run", "run/config.toml", "--out", "again"],
]
RECORDED = {
    "method": ('[method]\nname = "heterofl"', '[method]\nname = "evil_parts:X"'),
    "source": ('[data.source]\nname = "digits"', '[data.source]\nname = "evil_parts:X"'),
    "model": ('name = "heterofl-cnn"', 'name = "evil_parts:X"'),
    "proxy": ("[data.source]", '[data.proxy]\nname = "evil_parts:X"\n\n[data.source]'),
    "optimizer": ('[train.optimizer]\nname = "sgd"', '[train.optimizer]\nname = "evil_parts:X"'),
    "shell": ('[data.source]\nname = "digits"\n', SHELL),
}


UNREAD = {  # what a command has no need of, and so does not even look for
    "inspect": ("source", "model", "proxy", "shell"),
    "ranks": ("source", "shell"),
}


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments[:3]))
@pytest.mark.parametrize("place", RECORDED)
def test_a_strangers_run_runs_no_code(potluck, strange, tmp_path, arguments, place):
    changed(strange, *RECORDED[place])
    told = potluck(*arguments)
    if place in UNREAD.get(arguments[0], ()):
        assert told.code == 0, told
    else:
        assert told.code == 2, told
        assert "add --trust" in told.err
        assert len(told.err.strip().splitlines()) == 1
        assert "run/config.toml" in told.err
    assert not (tmp_path / MARK).exists()
    assert str(tmp_path) not in sys.path
    assert "evil_parts" not in sys.modules


@pytest.mark.parametrize("command", ["run", "costs", "partition"])
@pytest.mark.parametrize("place", PLACES)
def test_a_strangers_config_runs_no_code(potluck, strange, tmp_path, command, place):
    (tmp_path / "a.toml").write_text(CONFIG.replace(*PLACES[place]))
    told = potluck(command, "a.toml")
    assert told.code == 2, told
    assert "evil_parts:X" in told.err
    assert "add --trust" in told.err
    assert not (tmp_path / MARK).exists()


@pytest.mark.parametrize(
    "option", ["task.model.width=0.5", "method.masking=zero", "data.source.recipe=plain", "train.optimizer.eps=1"]
)
def test_an_option_that_was_typed_does_not_vouch_for_the_name_in_the_file(potluck, strange, tmp_path, option):
    place = {"task": "model", "method": "method", "data": "source", "train": "optimizer"}[option.partition(".")[0]]
    (tmp_path / "a.toml").write_text(CONFIG.replace(*PLACES[place]))
    told = potluck("costs", "a.toml", "--set", option)
    assert told.code == 2
    assert "add --trust" in told.err
    assert not (tmp_path / MARK).exists()


OWN = """\
import torch, potluck
def data():
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    return potluck.Dataset(potluck.Arrays(x, (x[:, 0] > 0).long()), potluck.Arrays(x, (x[:, 0] > 0).long()), 2)
def net(width) -> object:
    n = int(8 * width)
    return torch.nn.Sequential(torch.nn.Linear(4, n), torch.nn.ReLU(), torch.nn.Linear(n, 2))
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A config of one's own, with network and data beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "trusted_parts.py").write_text(OWN)
    text = CONFIG.replace('{ name = "heterofl-cnn", hidden = [4, 8, 8, 8] }', '"trusted_parts:net"')
    (tmp_path / "own.toml").write_text(text.replace('"digits"', '"trusted_parts:data"').replace("28", "4"))
    yield tmp_path
    sys.modules.pop("trusted_parts", None)


def test_with_trust_it_runs_and_is_exported(potluck, own):
    assert potluck("run", "own.toml", "--trust", "--out", "run").code == 0
    refused = potluck("export", "run", "--ratio", "0.75", "--out", "a.safetensors")
    assert (refused.code, "add --trust" in refused.err) == (2, True)
    assert potluck("export", "run", "--ratio", "0.75", "--out", "a.safetensors", "--trust").code == 0


def test_what_the_user_types_needs_no_trust(potluck, own):
    typed = ["--set", "task.model=trusted_parts:net", "--set", "data.source=trusted_parts:data"]
    assert potluck("costs", "own.toml", "--no-measure", *typed).code == 0
    assert potluck("plan", "trusted_parts:net", "--input", "4").code == 0


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("data.source=os:system", "no function or class that makes a Dataset"),
        ("data.source=subprocess:run", "no function or class that makes a Dataset"),
        ("data.source=pathlib:Path", "no function or class that makes a Dataset"),
        ("data.source=torch.nn:Linear", "no function or class that makes a Dataset"),
        ("task.model=potluck:run", "no function or class that makes a Module"),
        ("task.model=os:getcwd", "no function or class that makes a Module"),
        ("task.model=subprocess:run", "no function or class that makes a Module"),
        ("task.model=math:pi", "no function or class that makes a Module"),
        ("task.model=builtins:print", "no function or class that makes a Module"),
        ("task.model=os:walk", "no function or class that makes a Module"),
        ("method.name=subprocess:Popen", "not a subclass of potluck.Method"),
        ("method.name=os:system", "not a subclass of potluck.Method"),
    ],
)
def test_what_is_trusted_is_still_of_the_right_kind_before_it_is_called(potluck, config, tmp_path, setting, says):
    told = potluck("run", config, "--set", setting, "--out", tmp_path / "run", "--trust")
    assert told.code == 2, told
    assert says in told.err
    assert len(told.err.strip().splitlines()) == 1


@pytest.mark.parametrize("body", ["1 / 0", "raise SystemExit(0)", "import nothing_like_this", "def f(: pass"])
def test_a_module_that_fails_as_it_is_imported(potluck, config, tmp_path, monkeypatch, body):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "failing_parts.py").write_text(body)
    told = potluck("run", config, "--set", "task.model=failing_parts:net")
    assert told.code == 2, told
    assert told.err.startswith("potluck: [task] cannot load model 'failing_parts:net': ")
    assert len(told.err.strip().splitlines()) == 1


ODD = """\
import functools, subprocess
hidden = functools.partial(subprocess.run, ["touch", "ran.txt"])
class Odd:
    __signature__ = 5
    def __call__(self, width): pass
odd = Odd()
"""


@pytest.mark.parametrize("name", ["hidden", "odd"])
def test_what_hides_what_it_calls_or_takes_is_not_called(potluck, config, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "odd_parts.py").write_text(ODD)
    told = potluck("run", config, "--set", f"task.model=odd_parts:{name}")
    sys.modules.pop("odd_parts", None)
    assert told.code == 2, told
    assert f"'odd_parts:{name}' is no function or class that makes a Module" in told.err
    assert not (tmp_path / MARK).exists()


def test_a_function_that_fails_as_it_is_called(potluck, config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "slipping_parts.py").write_text("def data():\n    return {}['x']\ndef net():\n    return {}['x']\n")
    for setting in ("data.source=slipping_parts:data", "task.model=slipping_parts:net"):
        told = potluck("run", config, "--set", setting)
        assert told.code == 2, told
        assert "slipping_parts.py" in told.err
        assert "raised KeyError: 'x'" in told.err
