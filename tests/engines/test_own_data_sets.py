"""Data sets of the user's in workers: who reads them, what is sent along, and what comes of an item that fails."""

import os
import re
import threading
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import potluck
from potluck.core.client import Site
from potluck.core.desk import Desk
from potluck.core.errors import ConfigError, DataError, RunError
from potluck.core.tensors import same_tensors
from potluck.data.items import collect
from potluck.engines.luggage import pack, unpack
from potluck.engines.slot import Slot

COUNT = 40
INPUTS = np.random.default_rng(0).normal(size=(COUNT, 5)).astype(np.float32)
LABELS = [number % 3 for number in range(COUNT)]
CLIENTS = {"alice": range(20), "bob": range(20, COUNT)}


@pytest.fixture(autouse=True)
def tight(monkeypatch):
    """No items fit in memory."""
    monkeypatch.setattr(collect, "MOST_BYTES", 0)


class Recorded(Dataset):
    """Items of a file; every read leaves a note of the process and of the item."""

    def __init__(self, folder, noise=0.0):
        np.save(folder / "inputs.npy", INPUTS)
        self.inputs, self.folder, self.noise = np.load(folder / "inputs.npy", mmap_mode="r"), folder, noise

    def __len__(self):
        return COUNT

    def __getitem__(self, number):
        (self.folder / f"read by {os.getpid()}").touch()
        if (self.folder / f"lost {number}").exists():
            raise OSError(f"item {number} is lost")
        if (self.folder / f"damaged {number}").exists():
            return torch.full((5,), torch.nan), LABELS[number]
        return torch.tensor(self.inputs[number]) + self.noise * torch.rand(5), LABELS[number]

    def readers(self):
        """The processes that have read since this was last asked."""
        notes = list(self.folder.glob("read by *"))
        for note in notes:
            note.unlink()
        return {int(note.name.split()[-1]) for note in notes}


def run(data, **changes):
    torch.manual_seed(0)
    settings = {
        "model": nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)),
        "data": data,
        "partition": CLIENTS,
        "test": (INPUTS, LABELS),
        "levels": {"server": 1.0, "watch": 0.5},
        "rounds": 2,
        "train": {"lr": 0.1, "batch_size": 8},
        "workers": 2,
        "watcher": None,
    }
    return potluck.run(**{**settings, **changes})


class OnceReady:
    """Does something to a data set when all of it was looked at and the run begins."""

    def __init__(self, what):
        self.what = what

    def begins(self, *told):
        self.what()


@pytest.mark.whole
def test_items_are_read_in_workers_alone(tmp_path):
    data = Recorded(tmp_path)
    run(data, watcher=OnceReady(data.readers))
    readers = data.readers()
    assert readers
    assert os.getpid() not in readers


def whole(result):
    """A result of which no client failed."""
    assert [record["failed"] for record in result.metrics] == [[]] * len(result.metrics)
    return result.state


@pytest.mark.whole
def test_random_items_are_the_same_in_any_number_of_workers_and_after_a_resume(tmp_path):
    data, place = Recorded(tmp_path, noise=0.5), tmp_path / "run"
    serial = whole(run(data, engine="serial"))
    first = whole(run(data, rounds=1, out=place))
    assert same_tensors(first, whole(run(data, rounds=1, engine="serial")))
    assert same_tensors(whole(run(data, rounds=2, out=place, resume=True, workers=1)), serial)
    assert not same_tensors(whole(run(data, engine="serial", seed=1)), serial)


@pytest.mark.slow
def test_random_items_are_the_same_as_they_are_scored_in_a_worker(tmp_path):
    data = Recorded(tmp_path, noise=0.5)
    here, there = (run(data, test=data, rounds=1, **engine) for engine in ({"engine": "serial"}, {"workers": 1}))
    assert same_tensors(whole(here), whole(there))
    assert here.metrics[-1]["levels"] == there.metrics[-1]["levels"]


@pytest.mark.parametrize("engine", ["serial", pytest.param("local", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("lost", "item 25 of the data cannot be read: .* raised OSError: item 25 is lost"),
        ("damaged", "input 25 has values"),
    ],
)
def test_an_item_that_cannot_be_read_is_its_clients_failure(tmp_path, engine, trouble, reason):
    data = Recorded(tmp_path)
    result = run(data, engine=engine, watcher=OnceReady((tmp_path / f"{trouble} 25").touch))
    assert len(result.metrics) == 2
    for record in result.metrics:
        (failed,) = record["failed"]
        assert (failed["name"], record["clients"]) == ("bob", 2)
        assert re.search(reason, failed["reason"])


@pytest.mark.whole
def test_a_file_that_is_gone_is_every_clients_failure_and_ends_the_run(tmp_path):
    np.save(tmp_path / "a.npy", INPUTS)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    with pytest.raises(RunError, match=r"cannot read .*a\.npy as it was: No such file"):
        run((mapped, LABELS), rounds=5, watcher=OnceReady((tmp_path / "a.npy").unlink))


@pytest.mark.slow
def test_an_unreadable_test_example_ends_the_run_in_a_sentence(tmp_path):
    data = Recorded(tmp_path)
    with pytest.raises(DataError, match="item 3 of the data cannot be read"):
        run((INPUTS, LABELS), test=data, watcher=OnceReady((tmp_path / "lost 3").touch))


def test_mapped_files_of_data_sets_are_opened_by_workers_themselves(tmp_path):
    large = np.memmap(tmp_path / "large", np.float32, "w+", shape=(1 << 20, 4))
    large[7] = 5
    site = Site(None, {"whole": large, "part": large[4:, 1:3], "plain": np.asarray(large), "small": np.arange(3)})
    slot = Slot.create()
    desk = Desk(None, None)
    content = pack(site, desk, slot)
    assert (len(content) < 10_000, slot.reserved) == (True, 0)
    found = unpack(content, slot)[0].holder
    for name, array in site.holder.items():
        assert np.array_equal(found[name], array)
    (tmp_path / "large").write_bytes(b"short")
    with pytest.raises(DataError, match=r"cannot read .*large as it was"):
        unpack(content, slot)
    slot.close()


class Locked(Dataset):
    """Items that no other process can have."""

    def __init__(self):
        self.lock = threading.Lock()

    def __len__(self):
        return COUNT

    def __getitem__(self, number):
        with self.lock:
            return torch.tensor(INPUTS[number]), LABELS[number]


class LockedLoss(nn.CrossEntropyLoss):
    """A loss that no other process can have."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


def right(outputs, targets, lock):
    return outputs.argmax(-1) == targets


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"data": Locked()}, "the data"),
        ({"loss": LockedLoss(), "task": "classes"}, "the loss"),
        ({"metrics": {"mine": partial(right, lock=threading.Lock())}}, "the metrics"),
    ],
)
def test_what_cannot_be_sent_to_workers_is_named(changes, what):
    said = f"^{what} cannot be sent to workers: cannot pickle '_thread.lock' object; let it .* engine be 'serial'$"
    settings = {"data": (INPUTS, LABELS), "rounds": 1, **changes}
    with pytest.raises(ConfigError, match=said):
        run(**settings)
    assert run(**settings, engine="serial").accuracy
