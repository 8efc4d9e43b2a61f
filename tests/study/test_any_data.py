"""Runs on data of any kind: where it lies, and who reads it, does not show in the bits."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import potluck
from potluck.core.data import Part
from potluck.core.errors import ConfigError, DataError
from potluck.core.tensors import same_tensors
from potluck.data.columns.ragged import Ragged
from potluck.data.columns.several import Several
from potluck.data.items import collect
from potluck.data.items.lazy import Items

INPUTS = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
LABELS = INPUTS[:, :3].argmax(1)


def net(outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, outputs))


def run(**changes):
    settings = {
        "model": net(),
        "levels": {"server": 1.0, "watch": 0.5},
        "rounds": 2,
        "train": {"lr": 0.1, "epochs": 2, "batch_size": 8},
        "engine": "serial",
        "watcher": None,
    }
    return potluck.run(**{**settings, **changes})


class Pairs(Dataset):
    def __init__(self, noise=0.0):
        self.noise = noise

    def __len__(self):
        return len(LABELS)

    def __getitem__(self, number):
        inputs = torch.from_numpy(INPUTS[number])
        return inputs + self.noise * torch.rand(5) if self.noise else inputs, int(LABELS[number])


@pytest.fixture
def mapped(tmp_path):
    np.save(tmp_path / "a.npy", INPUTS)
    return np.load(tmp_path / "a.npy", mmap_mode="r")


def test_a_file_items_and_arrays_give_the_same_run(mapped, monkeypatch):
    held = run(data=(INPUTS, LABELS), clients=6)
    found = run(data=(mapped, LABELS), clients=6)
    assert isinstance(found.experiment.data, Part)
    assert same_tensors(found.state, held.state)
    assert same_tensors(run(data=Pairs(), clients=6).state, held.state)
    monkeypatch.setattr(collect, "MOST_BYTES", 0)
    lazy = run(data=Pairs(), clients=6)
    assert isinstance(lazy.experiment.data.whole, Items)
    assert same_tensors(lazy.state, held.state)
    assert lazy.metrics[-1]["levels"] == held.metrics[-1]["levels"]


@pytest.mark.slow
def test_workers_read_what_is_lazy_themselves_and_random_items_alike(mapped):
    for data in ((mapped, LABELS), Pairs(noise=0.1)):
        here, there = run(data=data, clients=6), run(data=data, clients=6, engine="local", workers=2)
        assert same_tensors(here.state, there.state)
    assert not same_tensors(here.state, run(data=Pairs(), clients=6).state)


def test_clients_with_files_are_joined_without_reading_them(mapped):
    parts = {"a": slice(0, 25), "b": slice(25, 60)}
    lazy = run(clients={name: (mapped[part], LABELS[part]) for name, part in parts.items()})
    held = run(clients={name: (INPUTS[part], LABELS[part]) for name, part in parts.items()})
    assert isinstance(lazy.experiment.data.inputs, Several)
    assert same_tensors(lazy.state, held.state)
    assert lazy.metrics[-1]["levels"] == held.metrics[-1]["levels"]


class Reader(nn.Module):
    """The mean of embeddings."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(20, 8), nn.Linear(8, 2)

    def forward(self, ids, mask):
        weights = mask.unsqueeze(-1)
        return self.head((self.embed(ids) * weights).sum(1) / weights.sum(1).clamp(min=1))


class Sentences(Dataset):
    def __init__(self, begin=0, count=40):
        self.begin, self.count = begin, count

    def __len__(self):
        return self.count

    def __getitem__(self, at):
        number = at + self.begin
        ids = (torch.arange(1 + number % 7) + number) % 20
        return {"ids": ids, "mask": torch.ones(len(ids)), "label": number % 2}


def together(items):
    def filled(key):
        return nn.utils.rnn.pad_sequence([item[key] for item in items], batch_first=True)

    return (filled("ids"), filled("mask")), torch.tensor([item["label"] for item in items])


@pytest.mark.whole
def test_sequences_are_the_same_padded_by_us_or_by_the_user():
    clients = {"a": (0, 15), "b": (15, 25)}
    padded = run(
        model=Reader(), clients={name: potluck.examples(Sentences(*part), pad=0) for name, part in clients.items()}
    )
    assert isinstance(padded.experiment.data.inputs["ids"], Ragged)
    loaders = {name: DataLoader(Sentences(*part), collate_fn=together) for name, part in clients.items()}
    collated = run(model=Reader(), clients=loaders, engine="local", workers=2)
    assert isinstance(collated.experiment.test, Items)
    assert same_tensors(padded.state, collated.state)
    assert padded.metrics[-1]["levels"] == collated.metrics[-1]["levels"]


def test_sequences_are_not_stacked():
    data = potluck.examples(Sentences(), pad=0)
    assert same_tensors(
        run(model=Reader(), data=data, clients=8).state, run(model=Reader(), data=data, clients=8, step="plain").state
    )
    with pytest.raises(
        ConfigError, match="clients cannot be trained stacked, since their examples are of unequal lengths"
    ):
        run(model=Reader(), data=data, clients=8, step="stacked-4")


def frame(**changes):
    pandas = pytest.importorskip("pandas")
    columns = {"shop": ["x", "y", "z"] * 20, "y": INPUTS[:, 0] * 2, **changes}
    return pandas.DataFrame(INPUTS, columns=list("abcde")).assign(**columns)


def test_a_column_says_who_the_clients_are():
    pytest.importorskip("pandas")
    settings = {"model": net(1), "task": "regression"}
    by_column = run(data=frame(), owners="shop", **settings)
    described = run(data=potluck.examples(frame(), target="y", owners="shop"), **settings)
    listed = run(data=(INPUTS, INPUTS[:, 0] * 2), owners=["x", "y", "z"] * 20, **settings)
    assert by_column.names == described.names == ("x", "y", "z")
    assert same_tensors(by_column.state, described.state)
    assert same_tensors(by_column.state, listed.state)


def test_test_examples_are_their_owners_too():
    result = run(data=frame(), owners="shop", test=frame().head(4), model=net(1), task="regression")
    holder = result.experiment.site.holder
    assert [len(holder.test(client)) for client in range(3)] == [2, 1, 1]


def test_owners_are_refused_where_they_contradict():
    given = potluck.examples(frame(), owners="shop")
    for changes, says in (
        ({"data": given, "owners": ["x"] * 60}, "the data have a column of owners already"),
        ({"data": given, "partition": [[0], [1]]}, "so owners should be left out"),
        ({"data": given, "partition": "iid"}, "partition is 'iid', but owners says who holds what"),
        ({"clients": {"a": given}}, "client 'a': its rows have owners"),
        ({"data": frame(), "owners": "store"}, "owners has 'store', but the table has no such column"),
    ):
        with pytest.raises((ConfigError, DataError), match=says):
            run(model=net(1), task="regression", **changes)


def test_classes_of_other_names_are_refused(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="image folders need Pillow")
    for client, names in {"alice": "ab", "bob": "bc", "carol": "ab"}.items():
        for name in names:
            (tmp_path / client / name).mkdir(parents=True)
            image.new("L", (5, 1)).save(tmp_path / client / name / "1.png")
    flat = nn.Sequential(nn.Flatten(), nn.Linear(5, 2))
    with pytest.raises(
        DataError, match="client 'bob' has the classes b, c, but client 'alice' has a, b: their numbers"
    ):
        run(model=flat, clients={"alice": tmp_path / "alice", "bob": tmp_path / "bob"})
    with pytest.raises(DataError, match="test has the classes b, c, but data has a, b"):
        run(model=flat, data=tmp_path / "alice", test=tmp_path / "bob", clients=2)
    with pytest.raises(DataError, match="test has the classes b, c, but client 'alice' has a, b"):
        run(model=flat, clients={"alice": tmp_path / "alice"}, test=tmp_path / "bob")
    run(model=flat, clients={"alice": tmp_path / "alice", "carol": tmp_path / "carol"}, test=tmp_path / "alice")


def test_large_folders_are_decoded_batch_by_batch(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image", reason="image folders need Pillow")
    for number in range(8):
        folder = tmp_path / "ab"[number % 2]
        folder.mkdir(exist_ok=True)
        colour = (number * 20, 0, 9) if number == 5 else number * 20
        image.new("RGB" if number == 5 else "L", (4, 3), colour).save(folder / f"{number}.png")
    held = potluck.examples(tmp_path).examples
    monkeypatch.setattr(collect, "MOST_BYTES", 0)
    lazy = potluck.examples(tmp_path).examples
    index = torch.tensor([6, 0, 3])
    assert not isinstance(lazy.inputs, torch.Tensor)
    assert torch.equal(lazy.take(index)[0], held.take(index)[0])
    image.new("L", (5, 5)).save(tmp_path / "a" / "9.png")
    with pytest.raises(DataError, match=r"9\.png is 5x5 pixels"):
        potluck.examples(tmp_path)


def test_arguments_in_another_order_are_the_same():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.left, self.right, self.head = nn.Linear(2, 8), nn.Linear(3, 8), nn.Linear(8, 3)

        def forward(self, x, z):
            return self.head(torch.relu(self.left(x) + self.right(z)))

    x, z = INPUTS[:, :2], INPUTS[:, 2:]
    ordered = run(
        model=Two(),
        clients={"a": ({"x": x[:30], "z": z[:30]}, LABELS[:30]), "b": ({"x": x[30:], "z": z[30:]}, LABELS[30:])},
    )
    mixed = run(
        model=Two(),
        clients={"a": ({"x": x[:30], "z": z[:30]}, LABELS[:30]), "b": ({"z": z[30:], "x": x[30:]}, LABELS[30:])},
    )
    in_order = run(model=Two(), clients={"a": ((x[:30], z[:30]), LABELS[:30]), "b": ((x[30:], z[30:]), LABELS[30:])})
    assert same_tensors(ordered.state, mixed.state)
    assert same_tensors(ordered.state, in_order.state)
