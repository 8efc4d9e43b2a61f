"""Clients that are known already, with data of every kind: the same examples give the same bits in any form."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

import potluck
from potluck.core.data import Chain, Part
from potluck.core.errors import DataError
from potluck.core.tensors import same_tensors
from potluck.data.columns.several import Several
from potluck.data.items import collect
from potluck.data.items.lazy import Items

SIZES = {"carol": 10, "alice": 12, "bob": 15}
TOTAL = sum(SIZES.values())
INPUTS = np.random.default_rng(0).normal(size=(TOTAL, 5)).astype(np.float32)
LABELS = INPUTS[:, :3].argmax(1)
ENDS = dict(zip(SIZES, np.split(np.arange(TOTAL), np.cumsum(list(SIZES.values()))[:-1]), strict=True))
OWNERS = np.repeat(list(SIZES), list(SIZES.values()))
LENGTHS = np.random.default_rng(1).integers(2, 7, TOTAL)
SEQUENCES = [torch.arange(length) % 8 + 1 for length in LENGTHS.tolist()]


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(5, 8), nn.Linear(2, 8), nn.Linear(8, 3)

    def forward(self, x, z):
        return self.head(torch.relu(self.left(x) + self.right(z)))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.hidden, self.head = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, ids):
        there = (ids > 0).unsqueeze(-1)
        return self.head(torch.relu(self.hidden((self.embed(ids) * there).sum(1) / there.sum(1))))


class Rows(Dataset):
    """Some items, each made by a function of its number."""

    def __init__(self, numbers, item):
        self.numbers, self.item = list(numbers), item

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, at):
        return self.item(self.numbers[at])


def pair(number):
    return torch.from_numpy(INPUTS[number]), int(LABELS[number])


def named_pair(number):
    return {"x": torch.from_numpy(INPUTS[number]), "z": torch.from_numpy(INPUTS[number, :2]), "label": LABELS[number]}


def sequence(number):
    return SEQUENCES[number], int(LABELS[number])


def together(items):
    return pad_sequence([ids for ids, _ in items], batch_first=True), torch.tensor([label for _, label in items])


def network(kind=None, outputs=3):
    torch.manual_seed(0)
    return kind() if kind else nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, outputs))


def run(model=None, **changes):
    settings = {
        "model": model or network(),
        "levels": {"server": 1.0, "watch": 0.5},
        "rounds": 1,
        "train": {"lr": 0.1, "batch_size": 4},
        "engine": "serial",
        "watcher": None,
    }
    result = potluck.run(**{**settings, **changes})
    assert not result.metrics[-1].get("failed")
    return result


@pytest.fixture
def lazy(monkeypatch):
    """Reads data as if they did not fit in memory."""

    def read(data, **options):
        with monkeypatch.context() as tight:
            tight.setattr(collect, "MOST_BYTES", 0)
            return potluck.examples(data, **options)

    return read


@pytest.fixture
def forms(tmp_path, lazy):
    """Examples by their numbers, in each kind of data."""
    np.save(tmp_path / "inputs.npy", INPUTS)
    mapped = np.load(tmp_path / "inputs.npy", mmap_mode="r")

    def frame(numbers):
        pandas = pytest.importorskip("pandas")
        columns = {f"f{at}": INPUTS[numbers, at] for at in range(5)}
        return pandas.DataFrame({**columns, "label": LABELS[numbers]})

    def csv(numbers):
        pytest.importorskip("pyarrow")
        path = tmp_path / f"{numbers[0]}-{len(numbers)}.csv"
        frame(numbers).to_csv(path, index=False, float_format="%.9g")
        return str(path)

    return {
        "arrays": lambda numbers: (INPUTS[numbers], LABELS[numbers]),
        "items": lambda numbers: Rows(numbers, pair),
        "a loader": lambda numbers: DataLoader(Rows(numbers, pair), batch_size=2),
        "lazy items": lambda numbers: lazy(Rows(numbers, pair)),
        "a frame": frame,
        "a CSV file": csv,
        "a mapped file": lambda numbers: (mapped[numbers[0] : numbers[-1] + 1], LABELS[numbers]),
    }


# ---- every form gives the same run ----


@pytest.fixture
def expected():
    return run(clients={name: (INPUTS[own], LABELS[own]) for name, own in ENDS.items()}).state


@pytest.mark.parametrize("form", ["items", "a loader", "lazy items", "a frame", "a CSV file", "a mapped file"])
def test_the_data_of_each_client_may_have_any_form(forms, form, expected):
    result = run(clients={name: forms[form](own) for name, own in ENDS.items()})
    assert result.names == tuple(SIZES)
    assert same_tensors(result.state, expected)


@pytest.mark.parametrize(
    ("kinds", "kept", "workers"),
    [
        (("a mapped file", "lazy items", "a frame"), Chain, 0),
        pytest.param(("a mapped file", "lazy items", "a frame"), Chain, 2, marks=pytest.mark.slow),
        (("a mapped file", "items", "a CSV file"), Several, 0),
    ],
)
def test_each_client_may_have_another_form(forms, kinds, kept, workers, expected):
    clients = {name: forms[kind](own) for kind, (name, own) in zip(kinds, ENDS.items(), strict=True)}
    result = run(clients=clients, **({"engine": "local", "workers": workers} if workers else {}))
    assert isinstance(result.experiment.data if kept is Chain else result.experiment.data.inputs, kept)
    assert same_tensors(result.state, expected)


@pytest.mark.parametrize("form", ["items", "lazy items", "a CSV file", "a mapped file"])
@pytest.mark.parametrize("who", ["lists", "named lists", "owners", "numbered owners"])
def test_lists_and_owners_go_with_any_form(forms, form, who, expected):
    told = {
        "lists": {"partition": [own.tolist() for own in ENDS.values()]},
        "named lists": {"partition": ENDS},
        "owners": {"owners": OWNERS.tolist()},
        "numbered owners": {"owners": [list(SIZES).index(name) + 5 for name in OWNERS]},
    }[who]
    result = run(data=forms[form](np.arange(TOTAL)), **told)
    assert result.names == {"lists": (), "numbered owners": ("5", "6", "7")}.get(who, tuple(SIZES))
    assert same_tensors(result.state, expected)


@pytest.mark.parametrize("form", ["lazy items", "a CSV file", "a mapped file"])
def test_test_examples_of_a_client_may_have_any_form(forms, form):
    plain, tests = forms["arrays"], {"bob": np.arange(9), "carol": np.arange(9, 14)}
    clients = {name: plain(own) for name, own in ENDS.items()}
    expected = run(clients=clients, test={name: plain(own) for name, own in tests.items()})
    for more in ({"clients": clients}, {"data": forms[form](np.arange(TOTAL)), "partition": ENDS}):
        result = run(**more, test={name: forms[form](own) for name, own in tests.items()})
        assert result.metrics[-1]["levels"] == expected.metrics[-1]["levels"]
        assert [len(result.experiment.site.holder.test(client)) for client in range(3)] == [5, 0, 9]


def test_several_inputs_by_name_may_be_arrays_and_lazy_items(lazy):
    columns = {name: ({"z": INPUTS[own, :2], "x": INPUTS[own]}, LABELS[own]) for name, own in ENDS.items()}
    items = {name: lazy(Rows(own, named_pair)) for name, own in ENDS.items()}
    expected = run(network(Two), clients=columns)
    for clients in (items, {**items, "alice": columns["alice"]}):
        assert same_tensors(run(network(Two), clients=clients).state, expected.state)


def test_sequences_may_be_lists_lazy_items_or_collated(lazy):
    listed = {name: potluck.examples(([SEQUENCES[at] for at in own], LABELS[own]), pad=0) for name, own in ENDS.items()}
    expected = run(network(Reader), clients=listed).state
    rows = {name: Rows(own, sequence) for name, own in ENDS.items()}
    for options in ({"pad": 0}, {"collate": together}):
        clients = {name: lazy(own, **options) for name, own in rows.items()}
        result = run(network(Reader), clients=clients)
        assert isinstance(result.experiment.data, Items)
        assert same_tensors(result.state, expected)
    by_list = run(network(Reader), data=lazy(Rows(range(TOTAL), sequence), pad=0), partition=ENDS)
    assert isinstance(by_list.experiment.data, Part)
    assert same_tensors(by_list.state, expected)


@pytest.mark.parametrize("task", ["regression", "multi-label"])
def test_other_tasks_may_be_arrays_and_lazy_items(lazy, task):
    targets = INPUTS[:, :1].astype(np.float64) if task == "regression" else (INPUTS[:, :3] > 0).astype(np.int64)

    def item(number):
        return torch.from_numpy(INPUTS[number]), torch.from_numpy(targets[number])

    model = network(outputs=targets.shape[1])
    arrays = {name: (INPUTS[own], targets[own]) for name, own in ENDS.items()}
    expected = run(model, clients=arrays, task=task)
    clients = {**arrays, "bob": lazy(Rows(ENDS["bob"], item))}
    result = run(model, clients=clients, task=task)
    assert isinstance(result.experiment.data, Chain)
    assert same_tensors(result.state, expected.state)


# ---- what the parts are made of need not be the same everywhere ----


def test_labels_may_be_whole_numbers_here_and_fractions_there(lazy):
    whole, all_of_them = np.arange(TOTAL) % 4, {}
    for name, own in ENDS.items():
        all_of_them[name] = INPUTS[own], whole[own].astype(np.float32)
    expected = run(network(outputs=1), clients=all_of_them, task="regression").state
    mixed = {**all_of_them, "alice": (INPUTS[ENDS["alice"]], whole[ENDS["alice"]].astype(np.uint8))}
    assert same_tensors(run(network(outputs=1), clients=mixed, task="regression").state, expected)
    mixed["bob"] = lazy(Rows(ENDS["bob"], lambda number: (torch.from_numpy(INPUTS[number]), int(whole[number]))))
    assert same_tensors(run(network(outputs=1), clients=mixed, task="regression").state, expected)


def test_bytes_may_be_in_memory_here_and_lazy_there(lazy):
    pixels = np.random.default_rng(0).integers(0, 255, (TOTAL, 5), dtype=np.uint8)
    arrays = {name: (pixels[own], LABELS[own]) for name, own in ENDS.items()}
    rows = Rows(ENDS["bob"], lambda number: (torch.from_numpy(pixels[number]), int(LABELS[number])))
    result = run(clients={**arrays, "bob": lazy(rows)})
    assert same_tensors(result.state, run(clients=arrays).state)


# ---- what cannot go together ----


def sequences(own, pad):
    return potluck.examples(([SEQUENCES[at] for at in own], LABELS[own]), pad=pad)


def test_sequences_in_memory_and_read_by_item_are_refused_in_a_sentence(lazy, tmp_path):
    np.save(tmp_path / "tokens.npy", np.ones((5, 4), np.int64))
    for other in (
        lazy(Rows(range(9), sequence), pad=0),
        lazy(Rows(range(9), sequence), collate=together),
        (np.load(tmp_path / "tokens.npy", mmap_mode="r"), LABELS[:5]),
    ):
        with pytest.raises(DataError, match=r"unequal length in different forms: .* the same pad= or collate="):
            run(network(Reader), clients={"a": sequences(np.arange(20), 0), "b": other})


def test_sequences_that_are_filled_up_with_different_numbers_are_refused():
    clients = {"a": sequences(np.arange(20), 0), "b": sequences(np.arange(20), 8)}
    with pytest.raises(DataError, match="filled up with 0 and with 8; give all the same pad="):
        run(network(Reader), clients=clients)


def turned(frame):
    return frame[frame.columns[::-1]]


@pytest.mark.parametrize("change", [turned, lambda frame: frame.rename(columns={"f4": "f9"})])
def test_tables_with_columns_in_another_order_are_refused(forms, change):
    first, other = forms["a frame"](np.arange(20)), change(forms["a frame"](np.arange(20, TOTAL)))
    says = "has the columns .*f.*: the network is given them in this order; give both the same columns"
    with pytest.raises(DataError, match=f"client 'b' {says}"):
        run(clients={"a": first, "b": other})
    with pytest.raises(DataError, match=f"test of client 'a' {says}"):
        run(clients={"a": first, "b": first}, test={"a": other})
    with pytest.raises(DataError, match=f"test {says}"):
        run(data=first, test=other, clients=2)
    names = [f"f{at}" for at in range(4)]
    chosen = [potluck.examples(each, inputs=names, target="label") for each in (first, other)]
    run(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), data=chosen[0], test=chosen[1], clients=2)
