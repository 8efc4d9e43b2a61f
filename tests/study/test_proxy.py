"""Public examples that everybody has: given from Python or by a config, used by methods that train on such."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from small_experiment import SMALL, interrupted, run_config, without_seconds, write_config
from torch import nn

import potluck
from potluck.core.errors import ConfigError, DataError, PotluckError
from potluck.core.goals.classes import Classes
from potluck.data import sources
from potluck.study.config import parse_config, read_config
from potluck.study.experiment import from_config
from potluck.study.recipes import rebuilt
from potluck.study.schema import TYPED


@dataclass(frozen=True)
class Public(potluck.Method):
    """FedAvg on public examples, and on private ones if it is told so."""

    private: bool = False
    epochs: int = 3

    def phases(self, job, ctx, personal):
        public = potluck.Phase(Classes(), source="proxy", train=potluck.Train(lr=0.05, epochs=self.epochs))
        return [public, potluck.Phase(Classes())] if self.private else [public]


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))


def arrays(count=120, seed=0):
    inputs = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))
    return inputs, inputs[:, :3].argmax(1)


def run(**changes):
    settings = {
        "model": network(),
        "data": arrays(),
        "levels": {"phone": 1.0},
        "clients": 4,
        "rounds": 3,
        "method": Public(),
        "train": potluck.Train(lr=0.05, epochs=2),
        "engine": "serial",
        "watcher": None,
    }
    return potluck.run(**{**settings, **changes})


def same(one, other):
    return all(torch.equal(one.state[name], tensor) for name, tensor in other.state.items())


# ---- from Python ----


def test_clients_learn_from_public_examples_alone():
    """What they hold themselves has no part in it, but for its sizes."""
    inputs, targets = arrays()
    one = run(proxy=arrays(60, seed=1), test=arrays(50, seed=2))
    other = run(proxy=arrays(60, seed=1), test=arrays(50, seed=2), data=(inputs * 0 - 7, targets))
    assert same(one, other)
    assert one.accuracy == other.accuracy
    assert one.accuracy["phone"] > 0.6  # seen: 0.92; chance is a third
    assert not same(one, run(proxy=arrays(60, seed=3), test=arrays(50, seed=2)))


def test_both_can_be_used_in_turn():
    public, both = run(proxy=arrays(60, seed=1)), run(proxy=arrays(60, seed=1), method=Public(private=True))
    assert not same(public, both)


def test_what_is_computed_on_public_examples_is_counted():
    """60 public examples three times, and 24 of one's own twice."""
    (cost,) = (result := run(proxy=arrays(60, seed=1), method=Public(private=True), rounds=1)).costs
    assert result.metrics[0]["macs"] == 4 * cost.macs * (3 * 60 + 2 * 24)


class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        inputs, targets = arrays(60, seed=1)
        return inputs[index], int(targets[index])


@pytest.mark.parametrize(
    "proxy",
    [
        tuple(tensor.numpy() for tensor in arrays(60, seed=1)),
        (np.asarray(arrays(60, seed=1)[0]), arrays(60, seed=1)[1].tolist()),
        Pairs(),
        potluck.Arrays(*arrays(60, seed=1)),
        potluck.Dataset(potluck.Arrays(*arrays(60, seed=1)), potluck.Arrays(*arrays(9, seed=5)), 3),
    ],
    ids=["numpy", "lists", "torch-dataset", "arrays", "dataset"],
)
def test_the_same_examples_give_the_same_run_however_they_come(proxy):
    assert same(run(proxy=proxy, rounds=1), run(proxy=arrays(60, seed=1), rounds=1))


def test_public_examples_by_name():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    named, given = (
        run(model=net, data="digits", proxy=proxy, clients=5, rounds=1)
        for proxy in ("digits", sources.load("digits").train)
    )
    assert same(named, given)


def test_workers_have_them_too():
    here = run(proxy=arrays(60, seed=1), method=Public(private=True))
    there = run(proxy=arrays(60, seed=1), method=Public(private=True), engine="local", workers=2)
    assert same(here, there)
    assert without_seconds(here.metrics) == without_seconds(there.metrics)


def test_a_method_that_does_not_ask_for_them_does_not_care():
    assert same(run(method="fedavg", proxy=arrays(60, seed=1)), run(method="fedavg"))


def test_without_them_every_client_says_what_is_missing():
    result = run(rounds=1)
    assert {each["reason"] for each in result.metrics[0]["failed"]} == {
        "a phase trains on proxy data, but the task has none"
    }


@pytest.mark.parametrize(
    ("proxy", "says"),
    [
        (
            (torch.zeros(9, 4), torch.zeros(9).long()),
            "^the proxy examples are float32:4, but the clients' are float32:5",
        ),
        ((torch.zeros(9, 5).long(), torch.zeros(9).long()), "the proxy examples are int64:5, but .* float32:5"),
        ("digits", "the proxy examples are float32:1x8x8, but the clients' are float32:5: they should be alike"),
        ("/no/such/folder", "there is no folder /no/such/folder"),
        (7, "data is a int"),
        ((torch.zeros(0, 5), torch.zeros(0).long()), "there are no examples"),
        pytest.param(
            (torch.zeros(9, 5), torch.arange(9)),
            "label",
        ),
        pytest.param(
            (torch.zeros(9, 5), torch.zeros(9, 2).long()),
            "label|target",
        ),
    ],
)
def test_mistakes(proxy, says):
    with pytest.raises(DataError, match=says):
        run(proxy=proxy)


# ---- from a config ----

MODULE = """\
import potluck, torch
from potluck.data import sources

def some(*, first=0, count=100, flat=False):
    whole = sources.load("digits")
    inputs, targets = whole.train.take(torch.arange(first, first + count))
    return potluck.Dataset(potluck.Arrays(inputs.flatten(1) if flat else inputs, targets), whole.test, 10)
"""
TEXT = (
    SMALL.replace('name = "heterofl"', f'name = "{__name__}:Public"')
    .replace("small = 0.5", "same = 1.0")
    .replace('partition = "iid"', 'partition = "iid"\nproxy = PROXY')
)
SOME = '{ name = "public_digits:some", count = 60 }'


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """Writes configs beside a module with public data."""
    (tmp_path / "public_digits.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("public_digits", None)
    yield lambda proxy=SOME: write_config(tmp_path, TEXT.replace("PROXY", proxy))
    sys.modules.pop("public_digits", None)


def test_a_config_names_public_data(beside):
    experiment = from_config(read_config(beside('"digits"'), trust=True))
    assert len(experiment.task.proxy) == len(experiment.data) == 1442
    experiment = from_config(read_config(beside(), trust=True))
    assert len(experiment.task.proxy) == 60
    assert from_config(read_config(beside("{ name = 'public_digits:some' }"), trust=True)).task.proxy is not None


def test_a_run_of_it_learns_from_them(beside, tmp_path):
    one = run_config(beside(), tmp_path / "run")
    other = run_config(beside('{ name = "public_digits:some", count = 60, first = 500 }'), tmp_path / "other")
    assert not any(record["failures"] for record in one.metrics)
    assert not same(one, other)
    (cost, _) = one.costs
    assert one.metrics[0]["macs"] == 3 * cost.macs * 3 * 60


def test_they_are_in_the_resolved_config_which_reads_back(beside):
    config = read_config(beside(), trust=True)
    table = config.resolved()
    assert table["data"]["proxy"] == {"name": "public_digits:some", "count": 60}
    assert parse_config(table, TYPED).resolved() == table
    assert read_config(beside('"digits"'), trust=True).resolved()["data"]["proxy"] == {"name": "digits"}
    assert "proxy" not in read_config(write_config(beside().parent), trust=True).resolved()["data"]


def test_they_can_be_set_on_the_command_line(beside):
    config = read_config(beside(), ["data.proxy.count=7"], trust=True)
    assert len(from_config(config).task.proxy) == 7
    assert len(from_config(read_config(beside(), ["data.proxy=digits"], trust=True)).task.proxy) == 1442


def test_a_run_with_them_is_rebuilt_and_resumed(beside, tmp_path):
    whole = run_config(beside(), tmp_path / "whole")
    directory = interrupted(beside(), tmp_path / "run")
    assert same(run_config(beside(), directory, resume=True), whole)
    recipe = rebuilt(read_config(directory / "config.toml", trust=True))
    assert recipe.run == whole.experiment.recipe.run
    assert len(recipe.task.proxy) == 60
    with pytest.raises(ConfigError, match="this machine builds the recipe"):
        rebuilt(read_config(directory / "config.toml", ["data.proxy.count=59"], trust=True))


def test_the_folder_that_is_given_for_data_is_where_they_are_looked_for(beside, tmp_path, monkeypatch):
    monkeypatch.delenv("POTLUCK_DATA", raising=False)
    with pytest.raises(DataError, match=str(tmp_path / "folder")):
        from_config(read_config(beside('"mnist"'), trust=True), tmp_path / "folder")


@pytest.mark.parametrize(
    ("proxy", "says"),
    [
        ("5", r"\[data\] proxy is 5, but it should be"),
        ('"digit"', "'digit'; did you mean 'digits'?"),
        ('"json:nothing"', "cannot load proxy 'json:nothing'"),
        ('"platform:node"', "is no function or class that makes a Dataset"),
        ('{ name = "public_digits:some", cuont = 3 }', "'cuont'; did you mean 'count'?"),
        (
            '{ name = "public_digits:some", flat = true }',
            "the proxy examples are float32:64, but the clients' are float32:1x8x8: they should be alike",
        ),
    ],
)
def test_mistakes_in_a_config(beside, proxy, says):
    with pytest.raises(PotluckError, match=says.replace("?", r"\?")):
        from_config(read_config(beside(proxy), trust=True))


@pytest.mark.parametrize("proxy", ['"platform:node"', '{ name = "public_digits:some", cuont = 3 }'])
def test_a_mistake_names_the_setting_that_has_it(beside, proxy):
    with pytest.raises(ConfigError, match="proxy") as refused:
        from_config(read_config(beside(proxy), trust=True))
    assert "source]" not in str(refused.value)
