"""Clients with names on the command line: a config whose data name their owners, and models handed out by name."""

import json
import sys

import pytest
import torch
from federation import PERSONAL
from own_heads import OwnHeads

import potluck as library
from potluck.core.checkpoint import read
from potluck.core.tensors import same_tensors, state_of
from potluck.data import sources

OWNED = """\
import torch, potluck
def examples(count, seed):
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return potluck.Arrays(x, (x[:, 0] > 0).long())
def data(*, names=("alice", "bob", "carol")):
    return potluck.Dataset(examples(60, 0), examples(12, 1), 2, owners=list(names) * 20, test_owners=list(names) * 4)
def net():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
"""


@pytest.fixture
def owned(tmp_path, monkeypatch):
    """A config whose clients are the owners of its data, with network and data beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "owned_parts.py").write_text(OWNED)
    text = PERSONAL.replace('{ name = "heterofl-cnn", hidden = [4, 8, 8, 8] }', '"owned_parts:net"')
    text = text.replace('"digits"', '"owned_parts:data"').replace("clients = 28", "clients = 3")
    (tmp_path / "owned.toml").write_text(text)
    yield tmp_path
    sys.modules.pop("owned_parts", None)


NATURAL = ("--set", "data.partition=natural")


def test_names_are_written_down_and_models_handed_out_by_them(potluck, owned):
    told = potluck("run", "owned.toml", "--trust", "--out", "run", *NATURAL)
    assert told.code == 0, told
    rows = json.loads((owned / "run" / "clients.json").read_text())
    assert [(row["name"], row["examples"], row["labels"]) for row in rows] == [
        ("alice", 20, [0, 1]),
        ("bob", 20, [0, 1]),
        ("carol", 20, [0, 1]),
    ]
    told = potluck("export", "run", "--trust", "--client", "bob", "--out", "bob.safetensors")
    assert told.code == 0, told
    _, about = read(owned / "bob.safetensors")
    assert (about["client"], about["name"]) == (1, "bob")
    told = potluck("export", "run", "--trust", "--client", "bop", "--out", "other.safetensors")
    assert (told.code, "there is no client 'bop'; did you mean 'bob'?" in told.err) == (2, True)
    told = potluck("run", "owned.toml", "--trust", "--out", "run", "--resume", *NATURAL)
    assert told.code == 0, told


def test_other_names_are_another_run(potluck, owned):
    short = ("run", "owned.toml", "--trust", "--out", "run", *NATURAL, "--set", "task.rounds=1")
    assert potluck(*short).code == 0
    (owned / "owned_parts.py").write_text(OWNED.replace("carol", "dave"))
    sys.modules.pop("owned_parts")
    told = potluck(*short, "--resume")
    assert told.code == 2
    assert "recipe.clients" in told.err


def test_gaps_and_dropped_options_are_told(potluck, owned):
    (owned / "owned_parts.py").write_text(OWNED.replace('("alice", "bob", "carol")', "(0, 1, 5)"))
    told = potluck("run", "owned.toml", "--trust", "--out", "run", *NATURAL, "--set", "task.rounds=1")
    assert told.code == 0, told
    assert "potluck: clients keep the numbers that they came with, which have gaps: there is no client '2'" in told.err
    config, source = (owned / "owned.toml").read_text(), 'source = "owned_parts:data"'
    dirichlet = config.replace(source, f'{source}\npartition = {{ name = "dirichlet", alpha = 0.3 }}')
    (owned / "owned.toml").write_text(dirichlet)
    told = potluck("partition", "owned.toml", "--trust", "--set", "data.partition.name=natural")
    assert told.code == 0, told
    assert "potluck: data.partition is 'natural' now: the options of 'dirichlet' are dropped (alpha)" in told.err


def test_an_owner_that_is_missing_is_one_sentence(potluck, owned):
    (owned / "owned_parts.py").write_text(OWNED.replace('"bob"', "None"))
    told = potluck("run", "owned.toml", "--trust", "--out", "run", *NATURAL)
    assert told.code == 2
    assert "owners has None for example 1" in told.err
    assert not (owned / "run").exists()


def test_a_run_from_python_needs_no_data_to_hand_out_a_clients_model(potluck, tmp_path):
    digits = sources.load("digits").train
    clients = {name: digits.take(torch.arange(at, 90, 3)) for at, name in enumerate(("alice", "bob", "carol"))}
    settings = {"model": "lg-mlp", "levels": {"all": 1.0}, "rounds": 1, "engine": "serial", "watcher": None}
    result = library.run(**settings, clients=clients, method=OwnHeads(), out=tmp_path / "run")
    out = tmp_path / "carol.safetensors"
    told = potluck("export", tmp_path / "run", "--trust", "--client", "carol", "--out", out)
    assert told.code == 0, told
    assert same_tensors(read(out)[0], state_of(result.export_client("carol")))


def test_a_size_between_the_levels_of_a_run_from_python(potluck, tmp_path):
    digits = sources.load("digits").train
    settings = {"model": "lg-mlp", "levels": {"a": 1.0, "b": 0.5}, "rounds": 1, "engine": "serial", "watcher": None}
    result = library.run(**settings, data=digits.take(torch.arange(90)), clients=3, out=tmp_path / "run")
    told = potluck("export", tmp_path / "run", "--ratio", "0.75", "--out", tmp_path / "net.safetensors")
    assert told.code == 0, told
    assert same_tensors(read(tmp_path / "net.safetensors")[0], state_of(result.export(0.75)))
    assert potluck("inspect", tmp_path / "run").code == 0
    assert potluck("compare", tmp_path / "run").code == 0
