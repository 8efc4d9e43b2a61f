"""The resolved config says everything, and reads back as itself."""

import math
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_experiment import SMALL, write_config

from potluck.cli.demo import EVERYBODY, RUNS, demo_config
from potluck.core.fit import MOMENTUM
from potluck.core.guard import Guard
from potluck.core.types import Train
from potluck.methods.heterofl import HeteroFL
from potluck.study.config import parse_config, read_config, write_toml
from potluck.study.schema import Origin

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))


def read_back(config):
    return parse_config(tomllib.loads(write_toml(config.resolved())), Origin())


def test_every_default_is_written_out(tmp_path):
    found = read_config(write_config(tmp_path)).resolved()
    assert set(found["train"]) == {field.name for field in fields(Train)}
    assert {*found["method"], "server"} == {"name", *(field.name for field in fields(HeteroFL))}  # there is no server
    assert found["data"]["partition"]["name"] == "iid"
    assert found["fleet"]["assignment"]["name"] == "fixed"
    assert found["train"]["momentum"] == MOMENTUM
    assert found["train"]["optimizer"] == {"name": "sgd", "nesterov": False}
    assert found["guard"] == {"bound": Guard().bound}
    assert found["task"]["scored_clients"] == 100
    assert "proxy" not in found["data"]  # there are none
    assert "recipe" not in found  # it is a run's


def test_the_name_of_the_file_is_the_name_of_an_experiment_without_one(tmp_path):
    text = SMALL.replace('name = "small"\n', "", 1)
    assert read_config(write_config(tmp_path, text)).resolved()["name"] == "a"


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_is_valid_and_resolves_to_itself(path):
    config = read_config(path)
    assert config.name == path.stem
    assert read_back(config).resolved() == config.resolved()


def test_there_are_experiments():
    assert "digits-heterofl" in [path.stem for path in EXPERIMENTS]


def test_the_digits_experiment_is_the_demos():
    path = next(path for path in EXPERIMENTS if path.stem == "digits-heterofl")
    assert read_config(path).resolved() == demo_config(RUNS[EVERYBODY], seed=0).resolved()


share = st.floats(min_value=0, max_value=1, exclude_min=True)
whole = st.integers(-(2**63), 2**63 - 1)
words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=8)
level_names = st.from_regex(r"[a-zé][a-z0-9 _-]{0,6}", fullmatch=True)
positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
tables = st.fixed_dictionaries(
    {
        "seed": st.integers(min_value=0, max_value=2**63 - 1),
        "task": st.fixed_dictionaries(
            {"model": st.just("heterofl-cnn") | st.builds(dict, name=words, anything=words | st.lists(whole))}
            | {"rounds": st.integers(1, 10**6)},
            optional={
                "evaluate_every": st.integers(1, 50),
                "calibration_clients": st.integers(1, 50),
                "scored_clients": st.integers(1, 50),
            },
        ),
        "data": st.fixed_dictionaries(
            {"source": words},
            optional={
                "partition": st.just("iid") | st.builds(dict, name=st.just("dirichlet"), alpha=positive),
                "test_examples": st.integers(1, 10**6),
                "proxy": words | st.builds(dict, name=words, anything=words),
            },
        ),
        "fleet": st.fixed_dictionaries(
            {"clients": st.integers(1, 10**6), "levels": st.dictionaries(level_names, share, min_size=1, max_size=4)},
            optional={
                "cohort": st.integers(1, 99) | st.floats(1e-9, 1),
                "assignment": st.sampled_from(["fixed", "blocks", "dynamic"])
                | st.builds(dict, name=st.just("fixed"), mix=st.just("a1-b3") | st.dictionaries(level_names, share)),
            },
        ),
        "method": st.sampled_from([{"name": "heterofl", "masking": "-inf"}, {"name": "fedavg"}])
        | st.builds(dict, name=st.just("fedavg"), width=share),
        "train": st.fixed_dictionaries(
            {},
            optional={
                "lr": st.floats(0, 1e30, exclude_min=True),
                "optimizer": st.sampled_from(["sgd", "adam", "adamw", "adagrad", "rmsprop"])
                | st.builds(dict, name=st.sampled_from(["adam", "rmsprop"]), eps=st.floats(0, 1e30)),
                "accumulate": st.integers(1, 10**9),
                "warmup": st.integers(0, 10**9),
                "schedule": st.sampled_from(["cosine", "linear", "exponential"])
                | st.lists(st.floats(0, 1e30), min_size=1, max_size=4),
                "milestones": st.lists(st.integers(0, 1000), max_size=3),
                "weight_decay": st.floats(0, 1),
            },
        ),
    },
    optional={
        "name": level_names,
        "engine": st.just({"name": "serial"}) | st.builds(dict, workers=st.integers(0, 64)),
        "guard": st.builds(dict, bound=positive | st.just(math.inf)),
    },
)


@settings(max_examples=150, deadline=None)
@given(tables)
def test_any_config_written_out_reads_back_as_itself(table):
    config = parse_config(table, Origin())
    again = read_back(config)
    assert again.resolved() == config.resolved()
    assert (again.method, again.train, again.partition) == (config.method, config.train, config.partition)
    assert (again.guard, again.data.proxy is None) == (config.guard, config.data.proxy is None)
