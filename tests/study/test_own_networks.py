"""Runs whose network is the user's plain nn.Module: from a config, and from Python."""

import os
import subprocess
import sys

import pytest
import torch
from small_experiment import SMALL, content, run_config, without_seconds, write_config
from torch import nn

import potluck
from potluck.core.errors import ConfigError, ModelError
from potluck.core.types import Level
from potluck.study.config import read_config
from potluck.study.experiment import from_config

MODULE = """\
from torch import nn

class Digits(nn.Sequential):
    def __init__(self, hidden=8):
        super().__init__(nn.Flatten(), nn.Linear(64, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, 10))

net = Digits()
"""
OURS = 'model = { name = "heterofl-cnn", hidden = [4, 8, 8, 8] }'
FULL, QUARTER = Level("full", 1.0), Level("quarter", 0.25)
COMMAND = [sys.executable, "-c", "from potluck.cli import main; main()"]


def config_for(model):
    """One round of two clients with this network."""
    text = SMALL.replace(OURS, f"model = {model}").replace("rounds = 3", "rounds = 1")
    return text.replace("calibration_clients = 3", "calibration_clients = 1").replace("cohort = 3", "cohort = 2")


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A config beside a module of its own, which is imported anew."""
    (tmp_path / "own_digits.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("own_digits", None)

    def write(model):
        return write_config(tmp_path, config_for(model))

    yield write
    sys.modules.pop("own_digits", None)


def weights(directory):
    """Every byte of what was trained."""
    return {name: data for name, data in content(directory).items() if name.startswith(("final", "models/"))}


def test_a_network_in_a_file_runs_with_heterofl(beside, tmp_path):
    result = run_config(beside('"own_digits:net"'), tmp_path / "run")
    assert [result.export(level)[1].out_features for level in ("big", "small")] == [8, 4]
    assert result.export("small")[2].running_mean.shape == (4,)


@pytest.mark.whole
def test_the_same_bytes_in_every_process(beside, tmp_path):
    config = beside('"own_digits:net"')
    torch.manual_seed(9)  # of no influence: weights that an import draws are drawn from the config's seed
    run_config(config, tmp_path / "here")
    there = subprocess.run(
        [*COMMAND, "run", str(config), "--trust", "--out", str(tmp_path / "there")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert there.returncode == 0, there.stderr
    assert "final.safetensors" in weights(tmp_path / "here")
    assert weights(tmp_path / "there") == weights(tmp_path / "here")


def test_the_seed_decides_the_first_weights(beside):
    def first(*overrides):
        sys.modules.pop("own_digits", None)
        experiment = from_config(read_config(beside('"own_digits:net"'), overrides, trust=True))
        return experiment.task.model(FULL)[1].weight

    torch.manual_seed(1)
    one = first()
    torch.manual_seed(2)
    assert torch.equal(first(), one)
    assert not torch.equal(first("seed=4"), one)


def test_a_class_takes_its_own_options_and_those_of_shrinking(beside):
    experiment = from_config(
        read_config(beside('{ name = "own_digits:Digits", hidden = 10, rounding = "round" }'), trust=True)
    )
    assert experiment.task.model(FULL)[1].out_features == 10
    assert experiment.task.model(QUARTER)[1].out_features == 2  # 2.5 to even
    experiment = from_config(read_config(beside('{ name = "own_digits:Digits", hidden = 10 }'), trust=True))
    assert experiment.task.model(QUARTER)[1].out_features == 3


def test_what_is_kept_whole_is_as_wide_on_every_level(beside, tmp_path):
    config = beside('{ name = "own_digits:net", keep = ["1.bias"] }')
    result = run_config(config, tmp_path / "run")
    assert [result.export(level)[1].out_features for level in ("big", "small")] == [8, 8]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ('{ name = "own_digits:net", kep = ["1"] }', "did you mean 'keep'?"),
        ('{ name = "own_digits:net", hidden = 4 }', "'hidden'"),
        ('{ name = "own_digits:Digits", hiden = 4 }', "did you mean 'hidden'?"),
        ('{ name = "own_digits:net", rounding = "down" }', "rounding"),
        ('{ name = "own_digits:net", keep = "1.bias" }', "keep"),
    ],
)
def test_options_nobody_knows(beside, model, said):
    with pytest.raises(ConfigError) as refused:
        from_config(read_config(beside(model), trust=True))
    assert said in str(refused.value)
    assert "own_digits" in str(refused.value) or "task.model" in str(refused.value)


def test_a_name_to_keep_that_nobody_has(beside):
    with pytest.raises(ModelError, match=r"did you mean '1\.bias'"):
        from_config(read_config(beside('{ name = "own_digits:net", keep = ["1.bais"] }'), trust=True))


def mlp():
    return nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def arrays(count=120):
    inputs = torch.randn(count, 5, generator=torch.Generator().manual_seed(0))
    return inputs, inputs[:, :3].argmax(1)


def run(model):
    return potluck.run(
        model=model,
        data=arrays(),
        levels={"server": 1.0, "phone": 0.5, "watch": 0.25},
        clients=4,
        rounds=2,
        train=potluck.Train(lr=0.1, epochs=1),
        engine="serial",
        watcher=None,
    )


def test_potluck_run_with_a_network():
    net = mlp()
    before = [parameter.clone() for parameter in net.parameters()]
    result = run(net)
    assert [result.export(level)[0].out_features for level in ("server", "phone", "watch")] == [16, 8, 4]
    assert result.export("watch")(torch.zeros(2, 5)).shape == (2, 3)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), before, strict=True))
    assert without_seconds(run(net).metrics) == without_seconds(result.metrics)


def test_potluck_costs_with_a_network():
    rows = potluck.costs(mlp(), {"server": 1.0, "phone": 0.5}, torch.zeros(1, 5), measure=False)
    sizes = [5 * n + n + 2 * n + 3 * n + 3 for n in (16, 8)]
    assert [row["parameters"] for row in rows] == sizes
    assert [row["macs"] for row in rows] == [5 * 16 + 16 * 3, 5 * 8 + 8 * 3]


def test_potluck_plan_of_a_network():
    found = potluck.plan(mlp(), torch.zeros(1, 5), 0.25)
    assert (found.parameters_full, found.parameters) == (11 * 16 + 3, 11 * 4 + 3)
    assert found.kept_whole == {"3.bias": "it is the network's output"}
    assert found.plan.shapes["3.weight"] == (3, 4)
    assert found.groups == {"0.weight": ["0.weight[0]", "0.bias[0]", "1.weight[0]", "1.bias[0]", "3.weight[1]"]}


def test_potluck_plan_of_a_function_says_the_same():
    def function(width):
        hidden = int(16 * width)
        return nn.Sequential(nn.Linear(5, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, 3))

    one, other = (potluck.plan(model, torch.zeros(1, 5), 0.25) for model in (mlp(), function))
    assert one.table() == other.table()


@pytest.mark.parametrize("width", [0, -1, 1.01])
def test_potluck_plan_of_no_width(width):
    with pytest.raises(ConfigError, match="above 0 and at most 1"):
        potluck.plan(mlp(), torch.zeros(1, 5), width)
