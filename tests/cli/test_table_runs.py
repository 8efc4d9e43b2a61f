"""A regression on a table from the command line: every command says what it has, and no more."""

import json
import os
import random
import signal
import tomllib

import pytest
import torch
from federation import outcome_of, rounds_recorded, start, wait_until

import potluck as library
from potluck.core.errors import RunError

pytest.importorskip("pyarrow", reason="tables need pyarrow")

NETWORK = """\
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
)
"""
CONFIG = """\
[task]
model = "network_for_tables:net"
rounds = 4
goal = "regression"
metrics = ["rmse", "r2"]

[data]
source = {{ name = "table", path = "{path}", target = "price", owner = "shop" }}
partition = "natural"

[fleet]
clients = 3
levels = {{ server = 1.0, phone = 0.25 }}

[method]
name = "heterofl"

[train]
lr = 0.05
epochs = 2

[engine]
name = "serial"
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    draws = random.Random(0)
    rows = [[draws.random() for _ in range(4)] for _ in range(300)]
    lines = [f"{a},{b},{c},{d},{'xyz'[at % 3]},{3 * a - 2 * b + c * d}" for at, (a, b, c, d) in enumerate(rows)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,d,shop,price", *lines]) + "\n")
    (tmp_path / "network_for_tables.py").write_text(NETWORK)
    path = tmp_path / "prices.toml"
    path.write_text(CONFIG.format(path=tmp_path / "rows.csv"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return path


@pytest.fixture
def run(potluck, config, tmp_path):
    """Runs a method into a folder of its name."""

    def ran(method):
        told = potluck("run", config, "--trust", "--out", tmp_path / method, "--set", f"method.name={method}")
        assert told.code == 0, told
        return tmp_path / method

    return ran


def test_runs_are_compared_loaded_and_exported(potluck, run, tmp_path):
    runs = [run(method) for method in ("heterofl", "fedhm", "flanc")]
    told = potluck("compare", *runs)
    assert told.code == 0
    assert "phone: rmse" in told.words
    assert "accuracy" not in told.words
    for directory in runs:
        recorded, file = library.load(directory, trust=True), tmp_path / "phone.pt2"
        assert set(recorded.scores["phone"]) == {"loss", "rmse", "r2"}
        with pytest.raises(RunError, match="this task has no accuracy, but loss, rmse, r2: see scores"):
            _ = recorded.accuracy
        assert potluck("export", directory, "--level", "phone", "--trust", "--out", file).code == 0
        rows = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(torch.export.load(file).module()(rows), recorded.export("phone")(rows))
        # 0.91 was seen at least, over seeds 0 to 2; the mean of all prices has 0
        assert recorded.scores["server"]["r2"] > 0.5
    assert "scores are in" in potluck("inspect", runs[0], "--trust").words


def test_costs_and_partition_need_no_classes(potluck, config, tmp_path):
    told = potluck("costs", config, "--trust", "--no-measure", "--json")
    assert [row["level"] for row in json.loads(told.out)] == ["server", "phone"]
    told = potluck("partition", config, "--trust")
    assert told.code == 0
    assert "3 clients hold 240 of 240 examples" in told.words
    assert "no skew to measure: with the task 'regression' an example has no class of its own" in told.words
    told = potluck("partition", config, "--trust", "--picture", tmp_path / "who.svg")
    assert told.code == 2
    assert "nothing to draw: with the task 'regression'" in told.words
    assert not (tmp_path / "who.svg").exists()


@pytest.mark.parametrize(
    ("grid", "says"),
    [("data.source.target=price,prise", "'prise'"), ("data.source.owner=shop,sho", "'sho'")],
)
def test_a_sweep_reads_its_tables_before_anything_runs(potluck, config, tmp_path, grid, says):
    told = potluck("sweep", config, "--trust", "--grid", grid, "--out", tmp_path / "sweep")
    assert told.code == 2
    (line,) = told.err.splitlines()
    assert says in line
    assert not (tmp_path / "sweep").exists()


def test_yes_and_no_have_a_skew(potluck, config, tmp_path):
    table = tmp_path / "rows.csv"
    header, *lines = table.read_text().splitlines()
    changed = [f"{cells},{int(float(price) > 0.6)}" for cells, _, price in (line.rpartition(",") for line in lines)]
    table.write_text("\n".join([header, *changed]) + "\n")
    told = potluck("partition", config, "--trust", "--set", "task.goal=binary", "--set", 'task.metrics=["auroc"]')
    assert told.code == 0, told
    assert "Skew 0.0" in told.words


@pytest.mark.slow
def test_a_killed_run_ends_as_if_nothing_had_been(potluck, run, config, tmp_path):
    whole, broken = run("heterofl"), tmp_path / "broken"
    process = start("run", config, "--trust", "--out", broken)
    wait_until(lambda: rounds_recorded(broken), process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert potluck("run", config, "--trust", "--out", broken, "--resume").code == 0
    assert outcome_of(broken) == outcome_of(whole)
    assert tomllib.loads((broken / "config.toml").read_text())["task"]["goal"] == "regression"
