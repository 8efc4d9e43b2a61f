"""The default: how clients are trained follows from what can be counted, and is written down."""

import json
import tomllib
from types import SimpleNamespace

import pytest
import torch
from small_experiment import StopAfter, content, run_config, without_seconds, write_config
from torch import nn

import potluck
from potluck.core.data import Arrays
from potluck.core.types import Client, Level
from potluck.core.ways.counted import Load
from potluck.core.ways.way import Way
from potluck.engines import make_engine
from potluck.study import counting
from potluck.study.config import read_config
from potluck.study.counting import count_ways, load_of
from potluck.study.experiment import from_config
from potluck.study.run import execute
from potluck.study.watchers import Nobody

LR = """\
name = "regression"
seed = 3

[task]
model = "lg-mlp"
rounds = 2

[data]
source = "digits"
test_examples = 40
partition = "iid"

[fleet]
clients = 103
levels = { big = 0.2, small = 0.1 }
cohort = 12

[method]
name = "heterofl"

[train]
lr = 0.05
epochs = 1
batch_size = 7
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return write_config(tmp_path_factory.mktemp("config"), LR)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_config(tmp_path_factory.mktemp("images"))


def step_in(directory):
    return tomllib.loads((directory / "config.toml").read_text())["engine"]["step"]


def weights(directory):
    return {name: found for name, found in content(directory).items() if name.startswith(("final", "models"))}


def metrics(directory):
    return without_seconds([json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()])


def counted(config):
    experiment = from_config(read_config(config))
    return count_ways(experiment, experiment.method.init(experiment.site.context(0)), experiment.costs())


def test_it_is_the_default(config):
    assert read_config(config).resolved()["engine"]["step"] == "counted"


def test_the_choice_is_written_down_and_gives_the_same_bits_again(config, tmp_path):
    class Quiet(Nobody):
        def tuned(self, ways, timed):
            raise AssertionError("nothing was timed")

    run_config(config, tmp_path / "run", watcher=Quiet())
    chosen = step_in(tmp_path / "run")
    assert chosen == counted(config)
    assert all(Way.called(way).stack > 1 for way in chosen.values())
    assert not (tmp_path / "run" / "tuning.json").exists()
    run_config(tmp_path / "run" / "config.toml", tmp_path / "again")
    assert weights(tmp_path / "run") == weights(tmp_path / "again")
    run_config(config, tmp_path / "plain", "engine.step=plain")
    assert weights(tmp_path / "run") != weights(tmp_path / "plain")


@pytest.mark.slow
@pytest.mark.parametrize("which", ["config", "images"])
def test_the_number_of_workers_does_not_show(which, request, tmp_path, monkeypatch):
    monkeypatch.setattr("potluck.core.ways.counted.LAID_OUT_MACS", 1)
    path = request.getfixturevalue(which)
    for name, workers in (("serial", 0), ("local", 1), ("local", 2)):
        found = read_config(path, [f"engine.name={name}", f"engine.workers={workers}", "task.rounds=1"])
        engine = make_engine(name, workers)
        try:
            execute(from_config(found), engine, found.resolved(), tmp_path / f"{name}{workers}")
        finally:
            engine.close()
    assert step_in(tmp_path / "serial0") == step_in(tmp_path / "local1") == step_in(tmp_path / "local2")
    assert "plain" not in step_in(tmp_path / "serial0").values()
    assert weights(tmp_path / "serial0") == weights(tmp_path / "local1") == weights(tmp_path / "local2")


def test_a_resumed_run_keeps_its_ways_even_if_the_rule_has_changed(config, tmp_path, monkeypatch):
    run_config(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_config(config, tmp_path / "run", watcher=StopAfter(1))
    monkeypatch.setattr("potluck.study.run.count_ways", lambda *of: pytest.fail("counted again"))
    run_config(config, tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


def test_the_default_takes_over_the_ways_of_an_older_run(config, tmp_path):
    run_config(config, tmp_path / "whole", "engine.step=plain")
    with pytest.raises(KeyboardInterrupt):
        run_config(config, tmp_path / "run", "engine.step=plain", watcher=StopAfter(1))
    run_config(config, tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


def test_counting_leaves_no_trace_in_the_bits(images, tmp_path, monkeypatch):
    monkeypatch.setattr("potluck.core.ways.counted.LAID_OUT_MACS", 1)
    monkeypatch.setattr("potluck.study.run.count_ways", lambda *of: dict.fromkeys(count_ways(*of), "plain"))
    run_config(images, tmp_path / "counted", "task.rounds=1")
    run_config(images, tmp_path / "plain", "task.rounds=1", "engine.step=plain")
    assert weights(tmp_path / "counted") == weights(tmp_path / "plain")


def test_a_way_that_computes_something_else_is_passed_over(images, monkeypatch):
    monkeypatch.setattr("potluck.core.ways.counted.LAID_OUT_MACS", 1)
    assert counted(images) == {"big": "channels-last", "small": "channels-last"}
    monkeypatch.setattr(counting, "agrees", lambda way, *of: False)
    assert counted(images) == {"big": "plain", "small": "plain"}


def test_a_level_that_takes_no_part_is_plain(config):
    experiment = from_config(read_config(config, ["method.name=fedavg"]))
    ways = count_ways(experiment, experiment.method.init(experiment.site.context(0)), experiment.costs())
    assert ways["small"] == "plain"
    assert ways["big"] != "plain"


def test_on_another_device_nothing_was_counted(config):
    experiment = from_config(read_config(config))
    elsewhere = SimpleNamespace(task=experiment.task, site=SimpleNamespace(device="cuda"))
    assert count_ways(elsewhere, {}, []) == {"big": "plain", "small": "plain"}


@pytest.mark.parametrize(
    ("sizes", "levels", "together"),
    [
        ([14] * 50, 1, 25),
        ([14] * 7, 1, 4),
        ([14] * 10, 5, 5),
        ([14] * 9, 5, 1),  # not two of a level
        ([14, 15] * 10, 5, 10),
        (range(1, 51), 1, 1),  # no two are alike
        ([14], 1, 1),
        ([], 1, 1),
    ],
)
def test_clients_are_stacked_if_there_are_some_alike_and_never_more_than_half(sizes, levels, together):
    of = [Level(f"level{number}", 1.0) for number in range(levels)]
    cohort = [Client(number, of[number % levels], size, ()) for number, size in enumerate(sizes)]
    experiment = SimpleNamespace(
        admitted=lambda: of,
        task=SimpleNamespace(train=potluck.Train(batch_size=10), levels=of),
        data=Arrays(torch.zeros(1, 2), torch.zeros(1)),
    )
    costs = [SimpleNamespace(level=level.name, macs=7) for level in of]
    assert load_of(experiment, of[0], costs, cohort) == Load(10, 7, together)


def test_from_python_it_is_the_default_too(tmp_path):
    inputs = torch.randn(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))
    potluck.run(
        model=net, data=(inputs, torch.arange(60) % 2), levels={"all": 1.0}, clients=4, rounds=1, method="fedavg",
        engine="serial", out=tmp_path / "run", watcher=None,
    )  # fmt: skip
    assert step_in(tmp_path / "run") == {"all": "stacked-2"}
