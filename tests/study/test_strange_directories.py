"""A run's directory that somebody else made: it writes nowhere else, and takes no more memory than a run of ours."""

import shutil

import pytest
import torch
from small_experiment import interrupted, run_config, write_config

from potluck.core.errors import ConfigError, ModelError, RunError
from potluck.study.networks import model_factory
from potluck.study.recipes import Facts

FACTS = {"classes": 10, "goal": "classes", "inputs": "float32:1x8x8", "targets": "int64:"}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A config, and a run of it that stopped after its first round."""
    folder = tmp_path_factory.mktemp("stopped")
    config = write_config(folder)
    return config, interrupted(config, folder / "run")


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "checkpoint", "models", "personal", "personal/next"])
def test_nothing_is_written_through_a_link(stopped, tmp_path, name):
    config, run = stopped
    directory, outside, link = shutil.copytree(run, tmp_path / "run"), tmp_path / "outside", tmp_path / "run" / name
    link.parent.mkdir(exist_ok=True)
    if link.exists():
        link.rename(outside)
    else:
        outside.mkdir()
    link.symlink_to(outside)
    before = sorted((path, path.is_file() and path.read_bytes()) for path in [outside, *outside.rglob("*")])
    with pytest.raises(RunError, match=f"{link} is a link to {outside}, but a run writes only below its directory"):
        run_config(config, directory, resume=True)
    assert sorted((path, path.is_file() and path.read_bytes()) for path in [outside, *outside.rglob("*")]) == before


def test_a_link_in_place_of_a_half_written_file_is_taken_away(stopped, tmp_path):
    config, run = stopped
    directory, outside = shutil.copytree(run, tmp_path / "run"), tmp_path / "outside"
    outside.write_text("mine")
    for name in (".config.toml.tmp", ".final.safetensors.tmp", "checkpoint/.latest.safetensors.tmp"):
        (directory / name).symlink_to(outside)
    run_config(config, directory, "task.rounds=4", resume=True)
    assert outside.read_text() == "mine"


def test_a_run_may_be_where_a_link_leads(stopped, tmp_path):
    """The user typed it."""
    config, run = stopped
    shutil.copytree(run, tmp_path / "elsewhere")
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    assert len(run_config(config, tmp_path / "run", resume=True).metrics) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": "float32:99999x99999"},
        {"targets": "int64:-70000x-70000"},
        {"inputs": "float32:1x-8"},
        {"inputs": ["float32:4096x4096"] * 5},
        {"inputs": {"a": "float32:4096x4096", "b": ["uint8:2x4096x4096"] * 2}},
        {"inputs": "nn:3"},
        {"classes": 10**12},
        {"classes": -1},
        {"classes": "10"},
        {"goal": "guess"},
    ],
    ids=str,
)
def test_facts_that_no_data_set_has_are_refused_before_memory_is_taken(change):
    assert Facts.of_table(FACTS).classes == 10
    with pytest.raises(ConfigError, match="does not tell what the data are like"):
        Facts.of_table({**FACTS, **change})


def test_a_network_without_options_is_too_large_for_too_many_classes():
    with pytest.raises(ModelError, match="the weights of heterofl-cnn would take"):
        model_factory("heterofl-cnn", {}, (torch.zeros(1, 1, 8, 8),), classes=10**9)
