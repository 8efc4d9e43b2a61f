"""Folders of images that do not fit in memory: decoded where clients run, with the bits of images in memory."""

import re

import numpy as np
import pytest
import torch
from torch import nn

import potluck
from potluck.core.data import Part
from potluck.core.errors import DataError
from potluck.core.tensors import same_tensors
from potluck.data.columns.pictures import Pictures
from potluck.data.columns.several import Several
from potluck.data.items import collect
from potluck.data.own import examples_from

image = pytest.importorskip("PIL.Image", reason="image folders need Pillow")
SIZE = 6
LISTS = {"alice": [0, 1, 2, 6, 7, 8], "bob": [3, 4, 5, 9, 10, 11]}  # of each class, three


def album(folder, count=6, seed=0):
    """A folder with two classes, in colour and grey."""
    rng = np.random.default_rng(seed)
    for label in ("cats", "dogs"):
        (folder / label).mkdir(parents=True)
        for number in range(count):
            shape = (SIZE, SIZE, 3) if number % 2 else (SIZE, SIZE)
            pixels = rng.integers(0, 256, shape, np.uint8)
            image.fromarray(pixels).save(folder / label / f"{number}.png")
    return str(folder)


@pytest.fixture
def folder(tmp_path):
    return album(tmp_path / "album")


@pytest.fixture
def tight(monkeypatch):
    """No folder fits in memory."""
    monkeypatch.setattr(collect, "MOST_BYTES", 0)


class OnceReady:
    """Does something when all images were looked at and the run begins."""

    def __init__(self, what):
        self.what = what

    def begins(self, *told):
        self.what()


def run(**changes):
    torch.manual_seed(0)
    settings = {
        "model": nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, 8), nn.ReLU(), nn.Linear(8, 2)),
        "levels": {"server": 1.0, "watch": 0.5},
        "rounds": 2,
        "train": {"lr": 0.1, "batch_size": 4},
        "engine": "serial",
        "watcher": None,
    }
    return potluck.run(**{**settings, **changes})


@pytest.mark.parametrize(
    "engine",
    [{}, pytest.param({"engine": "local", "workers": 2}, marks=pytest.mark.slow)],
    ids=["serial", "two workers"],
)
def test_a_folder_on_disk_gives_the_bits_of_one_in_memory(folder, monkeypatch, engine):
    held = run(data=folder, partition=LISTS)
    monkeypatch.setattr(collect, "MOST_BYTES", 0)
    found = run(data=folder, partition=LISTS, **engine)
    assert isinstance(found.experiment.data, Part)
    assert isinstance(found.experiment.data.whole.inputs, Pictures)
    assert not any(record["failed"] for record in found.metrics)
    assert same_tensors(found.state, held.state)
    assert found.metrics[-1]["levels"] == held.metrics[-1]["levels"]


def test_clients_have_folders_of_their_own_large_and_small(tmp_path, monkeypatch):
    folders = {name: album(tmp_path / name, seed=seed) for seed, name in enumerate(("alice", "bob", "carol"))}
    held = run(clients=folders)
    small = examples_from(folders["bob"])
    monkeypatch.setattr(collect, "MOST_BYTES", 0)
    for clients in (folders, {**folders, "bob": small}):
        found = run(clients=clients)
        assert isinstance(found.experiment.data.inputs, Several)
        assert same_tensors(found.state, held.state)


def test_folders_with_other_classes_or_sizes_are_refused_before_the_run(tmp_path, tight):
    folders = {name: album(tmp_path / name) for name in ("alice", "bob")}
    (tmp_path / "bob" / "dogs").rename(tmp_path / "bob" / "wolves")
    with pytest.raises(DataError, match="client 'bob' has the classes cats, wolves, but client 'alice' has cats, dogs"):
        run(clients=folders)
    image.new("L", (2, 2)).save(tmp_path / "alice" / "dogs" / "1.png")
    with pytest.raises(DataError, match=r"client 'alice': .*1\.png is 2x2 pixels, but .*0\.png is 6x6"):
        run(clients=folders)


@pytest.mark.parametrize(
    ("engine", "trouble", "reason"),
    [
        ({}, lambda file: file.unlink(), r"4\.png"),
        ({}, lambda file: file.write_bytes(file.read_bytes()[:60]), r"4\.png is truncated or no image"),
        ({"engine": "local", "workers": 1}, lambda file: file.write_bytes(b"none"), r"4\.png is truncated or no image"),
    ],
    ids=["gone", "cut short", "no image, a worker"],
)
def test_an_image_that_cannot_be_read_any_more_is_its_clients_failure(tmp_path, monkeypatch, engine, trouble, reason):
    folder, test = album(tmp_path / "album"), examples_from(album(tmp_path / "test", seed=1))
    monkeypatch.setattr(collect, "MOST_BYTES", 0)
    lost = tmp_path / "album" / "cats" / "4.png"  # one of bob's
    result = run(data=folder, partition=LISTS, test=test, watcher=OnceReady(lambda: trouble(lost)), **engine)
    assert len(result.metrics) == 2
    for record in result.metrics:
        (failed,) = record["failed"]
        assert (failed["name"], record["clients"]) == ("bob", 2)
        assert re.search(reason, failed["reason"])


def test_a_test_image_that_cannot_be_read_any_more_ends_the_run_in_a_sentence(tmp_path, folder, tight):
    lost = tmp_path / "test" / "dogs" / "2.png"
    test = album(tmp_path / "test", seed=1)
    with pytest.raises(DataError, match=r"2\.png"):
        run(data=folder, partition=LISTS, test=test, watcher=OnceReady(lost.unlink))
