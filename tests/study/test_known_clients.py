"""Clients that are known already: data by name, lists of examples, owners; nothing is partitioned, and names stay."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from heads_at_home import OwnHeads
from small_experiment import StopAfter
from torch import nn

import potluck
from potluck.core.checkpoint import read
from potluck.core.data import Arrays
from potluck.core.errors import ConfigError, DataError, RunError
from potluck.core.tensors import same_tensors, state_of
from potluck.data import sources
from potluck.study.joined import joined

LEVELS = {"server": 1.0, "watch": 0.5}
NAMES = ("carol", "alice", "bob")


def arrays(count=60, seed=0):
    inputs = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))
    return inputs, inputs[:, :3].argmax(1)


def by_client(sizes=(10, 20, 30)):
    """Examples by client, one after the other, in the order of the whole."""
    inputs, targets = arrays(sum(sizes))
    parts = zip(NAMES, inputs.split(sizes), targets.split(sizes), strict=True)
    return {name: (own, labels) for name, own, labels in parts}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))


def run(**changes):
    settings = {
        "model": net(),
        "levels": LEVELS,
        "rounds": 1,
        "train": {"lr": 0.1, "epochs": 1},
        "engine": "serial",
        "watcher": None,
    }
    return potluck.run(**{**settings, **changes})


@dataclass(frozen=True)
class Clumsy(potluck.Method):
    """Client 1 cannot answer."""

    def collect(self, net, job, ctx):
        if job.client.id == 1:
            raise ValueError("a slip")
        return super().collect(net, job, ctx)


def held(result):
    """The first input of each example that each client trains on, and of each that it is scored on."""
    holder = result.experiment.site.holder
    found = []
    for client in range(len(holder)):
        both = (holder.examples(client), holder.test(client))
        found.append([each.take(torch.arange(len(each)))[0][:, 0].tolist() for each in both])
    return found


# ---- who holds what ----


def test_each_client_has_its_own_data_and_a_share_of_them_is_held_out():
    clients = by_client()
    result = run(clients=clients)
    assert result.names == NAMES
    for (inputs, _), (train, test) in zip(clients.values(), held(result), strict=True):
        assert len(test) == len(inputs) // 5
        assert sorted(train + test) == sorted(inputs[:, 0].tolist())
        order = [inputs[:, 0].tolist().index(value) for value in train]
        assert order == sorted(order)


def test_test_examples_by_client_are_theirs():
    clients, tests = by_client(), {"bob": arrays(4, seed=1), "alice": arrays(3, seed=2)}
    result = run(clients=clients, test=tests)
    found = held(result)
    for at, name in enumerate(NAMES):
        assert found[at][0] == clients[name][0][:, 0].tolist()
        assert found[at][1] == (tests[name][0][:, 0].tolist() if name in tests else [])
    assert len(result.experiment.test) == 7


def test_test_examples_of_everybody_are_dealt_out_by_class():
    result = run(clients=by_client(), test=arrays(30, seed=1))
    assert len(result.experiment.test) == 30
    assert sum(len(test) for _, test in held(result)) == 30


def test_the_same_clients_in_every_form_give_the_same_run():
    inputs, targets = arrays()
    named = run(clients=by_client())
    ends = [range(10), range(10, 30), range(30, 60)]
    forms = [
        {"data": (inputs, targets), "partition": dict(zip(NAMES, ends, strict=True))},
        {"data": (inputs, targets), "partition": [list(each) for each in ends]},
        {"data": (inputs, targets), "partition": [np.array(each) for each in ends], "clients": 3},
        {"data": (inputs, targets), "partition": [torch.tensor(each) for each in ends]},
        {"data": (inputs, targets), "owners": [name for name, each in zip(NAMES, ends, strict=True) for _ in each]},
        {"data": (inputs, targets), "owners": np.repeat(np.array(NAMES), [10, 20, 30])},
        {"data": (inputs, targets), "owners": torch.tensor([0, 1, 2]).repeat_interleave(torch.tensor([10, 20, 30]))},
        {"clients": {name: list(zip(*own, strict=True)) for name, own in by_client().items()}},
    ]
    for form in forms:
        found = run(**form)
        assert same_tensors(found.state, named.state)
        assert held(found) == held(named)
        assert found.names in (NAMES, ())


@pytest.mark.whole
def test_the_engine_does_not_show():
    here, there = run(clients=by_client()), run(clients=by_client(), engine="local", workers=2)
    assert same_tensors(here.state, there.state)


def test_numbers_count_in_the_data_as_given_and_the_rest_is_left_out():
    inputs, _ = arrays()
    result = run(data=arrays(), partition={"alice": [5, 3, 8], "bob": [40, 41]}, test=arrays(9, seed=1))
    assert result.names == ("alice", "bob")
    assert [train for train, _ in held(result)] == [inputs[[5, 3, 8], 0].tolist(), inputs[[40, 41], 0].tolist()]
    assert len(result.experiment.data) == 5


def test_lists_of_a_data_set_that_has_a_name():
    digits = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    result = run(model=digits, data="digits", partition=[range(0, 40), range(40, 100)])
    assert [result.experiment.holdings.size(client) for client in (0, 1)] == [40, 60]
    assert result.names == ()
    assert len(result.experiment.test) == len(sources.load("digits").test)


def test_owners_may_be_fewer_clients_than_there_are():
    owners = [NAMES[at % 3] for at in range(60)]
    result = run(data=arrays(), owners=owners, clients=2)
    assert len(result.names) == 2
    assert set(result.names) < set(NAMES)


def test_owners_of_a_dataset_and_of_its_test_examples():
    inputs, targets = arrays()
    train, test = Arrays(inputs[:48], targets[:48]), Arrays(inputs[48:], targets[48:])
    data = potluck.Dataset(train, test, 3, owners=["b", "a"] * 24, test_owners=["a"] * 5 + ["b"] * 4 + ["c"] * 3)
    result = run(data=data, partition="natural")
    assert result.names == ("b", "a")
    assert [len(test) for _, test in held(result)] == [4, 5]
    assert result.experiment.desk.local.owned.tolist() == [True] * 9 + [False] * 3


def test_gaps_between_numbers_are_told_and_such_clients_are_called_by_them():
    with pytest.warns(UserWarning, match="the numbers that they came with, which have gaps: there is no client '1'"):
        result = run(data=arrays(), owners=[0, 5, 2] * 20)
    assert result.names == ("0", "5", "2")


def test_a_client_with_one_example_keeps_it():
    result = run(data=arrays(), partition=[[0], range(1, 60)])
    assert [len(part) for part in held(result)[0]] == [1, 0]
    with pytest.raises(DataError, match=r"test is 0.2, but no client has an example to spare"):
        run(data=arrays(), partition=[[0], [1]])


def test_clients_that_bring_data_sets_bring_their_test_examples():
    parts = {}
    for seed, name in enumerate(NAMES):
        inputs, targets = arrays(20, seed)
        parts[name] = potluck.Dataset(Arrays(inputs[:15], targets[:15]), Arrays(inputs[15:], targets[15:]), 3)
    assert [[len(part) for part in each] for each in held(run(clients=parts))] == [[15, 5]] * 3


def test_tensors_are_copied_once():
    """What is joined is filled client by client: no client's examples are copied on the way."""
    parts = {str(at): (Arrays(*arrays(1000, at)), torch.arange(1000)) for at in range(20)}
    largest = 0
    allocated = torch.Tensor.new_empty

    def counting(self, size, **options):
        nonlocal largest
        made = allocated(self, size, **options)
        largest += made.numel() * made.element_size()
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "new_empty", counting)
        patch.setattr(torch, "cat", lambda *_: pytest.fail("it is concatenated again"))
        whole = joined(parts)
    assert largest == whole.inputs.nbytes + whole.targets.nbytes
    assert torch.equal(whole.inputs[3000:4000], parts["3"][0].inputs)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"clients": {}}, "clients is empty"),
        ({"clients": {"a": arrays()}, "data": arrays()}, "clients has the data of each client, so data should be left"),
        ({"clients": {"a": arrays()}, "partition": "iid"}, "so partition should be left out"),
        ({"clients": {"a": arrays()}, "owners": ["a"]}, "so owners should be left out"),
        ({"clients": {1: arrays(), "1": arrays()}}, "a number and a text that are the same name"),
        ({"clients": {None: arrays()}}, "clients has the key None"),
        ({"clients": {"a": (torch.zeros(0, 5), torch.zeros(0).long())}}, "client 'a': .*there are no examples"),
        ({"clients": {"a": arrays(), "b": 3}}, "client 'b': data is a int"),
        (
            {"clients": {"a": arrays(), "b": (torch.zeros(9, 4), torch.zeros(9).long())}},
            "client 'b' has inputs float32:4, but client 'a' has float32:5: they should be alike",
        ),
        (
            {"clients": {"a": arrays(), "b": (torch.zeros(9, 5).byte(), torch.zeros(9).long())}},
            "client 'b' has inputs uint8:5, but client 'a' has float32:5",
        ),
        (
            {"clients": {"a": arrays(), "b": (torch.zeros(9, 5), torch.zeros(9, 5).long())}},
            "client 'b' has labels int64:5",
        ),
        (
            {"clients": {"a": Arrays(*arrays()), "b": Arrays(*arrays(), prepare=torch.neg)}},
            "client 'b' has examples that are prepared or used in another way than those of client 'a'",
        ),
        ({"clients": {"a": arrays()}, "test": {"b": arrays()}}, "test has 'b', who is none of the clients"),
        ({"clients": {"a": arrays()}, "test": {"a": 3}}, "test of client 'a': data is a int"),
        (
            {"clients": {"a": arrays()}, "test": {"a": (torch.zeros(2, 4), torch.zeros(2).long())}},
            "test of client 'a' has inputs float32:4, but client 'a' has float32:5",
        ),
        ({"clients": {"a": arrays()}, "test": 1.5}, "test is 1.5, but it should be a share between 0 and 1"),
        ({"clients": {"a": arrays()}, "test": float("nan")}, "test is nan"),
        ({"data": arrays()}, "clients is None, but it should be a number, or a dictionary"),
        ({"data": arrays(), "partition": []}, "partition is empty"),
        ({"data": arrays(), "partition": [[0], [1]], "clients": 3}, "to 2 clients, but clients is 3; leave it out"),
        ({"data": arrays(), "partition": [[0], [60]]}, "example 60 .* from 0 to 59"),
        ({"data": arrays(), "partition": [[0], []]}, "partition gives client '1' no examples"),
        ({"data": arrays(), "partition": [[0, 3], [2], [3]]}, "example 3 to clients '0' and '2'"),
        ({"data": arrays(), "partition": [[0, 0], [2]]}, "example 0 to client '0' twice; list it once"),
        ({"data": arrays(), "partition": {"a": "all"}}, "partition has 'all' for client 'a', but it should list the"),
        ({"data": arrays(), "partition": {"alpha": 1.0}}, "a partition with options has a 'name'"),
        (
            {"data": arrays(), "partition": [3, 4]},
            "partition has 3 for client '0'.* the client of each example is what owners= takes",
        ),
        ({"data": arrays(), "partition": [[0, "x"], [1]]}, "gives client 0 a list, but it should give it the numbers"),
        ({"data": arrays(), "partition": {"a": arrays()[1] > 0}}, "truth values"),
        ({"data": arrays(), "partition": [[0]], "owners": ["a"] * 60}, "so owners should be left out"),
        ({"data": arrays(), "owners": ["a"] * 59}, "owners has 59 entries for 60 examples"),
        ({"data": arrays(), "owners": ["a", None] * 30}, "owners has None for example 1"),
        ({"data": arrays(), "owners": "alice"}, "owners is 'alice', but it should have the owner of each example"),
        ({"data": arrays(), "owners": ["a", "b"] * 30, "partition": "iid"}, "partition is 'iid', but owners says who"),
        ({"data": arrays(), "owners": ["a", "b"] * 30, "clients": 3}, "the data have 2 owners"),
        ({"data": "digits", "owners": ["a"]}, "owners goes with examples of your own"),
        (
            {"data": arrays(), "clients": 3, "test": {"a": arrays()}},
            "test is a dictionary, but the clients have no names",
        ),
        ({"clients": 3}, "data is None; give data="),
        (
            {"clients": [arrays()]},
            "clients is a list, but it should be a number, or a dictionary with the data of each",
        ),
        (
            {"clients": 2, "data": arrays(), "test": (torch.full((4, 5), torch.nan), torch.zeros(4).long())},
            "^test: .*not finite",
        ),
        (
            {"clients": {"a": arrays()}, "test": (torch.full((4, 5), torch.nan), torch.zeros(4).long())},
            "^test: .*not finite",
        ),
        ({}, "data is None; give data="),
    ],
)
def test_mistakes_get_a_sentence(wrong, says):
    with pytest.raises((ConfigError, DataError), match=says):
        run(**wrong)


# ---- names in records ----


def test_failures_have_names(tmp_path, capsys):
    seen = []

    class Watches:
        def client_failed(self, failure):
            seen.append(failure)

    result = run(clients=by_client(), method=Clumsy(), levels={"all": 1.0}, out=tmp_path / "run", watcher=Watches())
    (failed,) = result.metrics[0]["failed"]
    assert (failed["client"], failed["name"]) == (1, "alice")
    assert [(each.client, each.name) for each in seen] == [(1, "alice")]
    assert str(seen[0]).startswith("client 'alice' (all) was left out of round 1: ")
    run(clients=by_client(), method=Clumsy(), levels={"all": 1.0}, watcher=potluck.study.api.ROUNDS)
    told = capsys.readouterr().err
    assert "client 'alice' (all) was left out of round 1" in told
    assert "(first client 'alice' of level 'all' in round 1)" in told


def test_without_names_records_are_as_before():
    result = run(data=arrays(), partition=[range(10), range(10, 30), range(30, 60)], method=Clumsy(), levels={"all": 1})
    (failed,) = result.metrics[0]["failed"]
    assert set(failed) == {"client", "level", "reason"}


def test_a_run_writes_down_who_its_clients_are(tmp_path):
    run(clients=by_client(), out=tmp_path / "run")
    found = json.loads((tmp_path / "run" / "clients.json").read_text())
    assert found == [
        {"name": "carol", "examples": 8},
        {"name": "alice", "examples": 16},
        {"name": "bob", "examples": 24},
    ]
    run(data=arrays(), partition=[range(10), range(10, 60)], out=tmp_path / "other")
    assert not (tmp_path / "other" / "clients.json").exists()


def test_models_of_clients_by_name_without_their_data(tmp_path):
    settings = {"clients": by_client(), "method": OwnHeads(), "levels": {"all": 1.0}, "rounds": 2}
    result = run(**settings, out=tmp_path / "run")
    recorded = potluck.load(tmp_path / "run", model=net(), trust=True)
    for name in NAMES:
        expected = state_of(result.export_client(name))
        assert same_tensors(state_of(recorded.export_client(name, out=tmp_path / "net.safetensors")), expected)
        weights, about = read(tmp_path / "net.safetensors")
        assert same_tensors(weights, expected)
        assert (about["client"], about["name"]) == (NAMES.index(name), name)
    kept = [read(path)[1] for path in sorted((tmp_path / "run" / "personal").rglob("[0-9].safetensors"))]
    assert [(each["client"], each["name"]) for each in kept] == list(enumerate(NAMES))
    for source in (result, recorded):
        with pytest.raises(ConfigError, match="there is no client 'alise'; did you mean 'alice'"):
            source.export_client("alise")
        with pytest.raises(ConfigError, match="there is no client '0'; there are carol, alice, bob"):
            source.export_client(0)
        with pytest.raises(ConfigError, match=r"export_client\('carol'\) gives that of client 'carol'"):
            source.export("all")


def test_a_damaged_list_of_clients_is_refused_and_a_resume_writes_it_again(tmp_path):
    settings = {"clients": by_client(), "method": OwnHeads(), "levels": {"all": 1.0}, "out": tmp_path / "run"}
    run(**settings)
    path = tmp_path / "run" / "clients.json"
    whole = path.read_bytes()
    for damage in (whole.replace(b"alice", b"alina"), b"[3]", b"{"):
        path.write_bytes(damage)
        with pytest.raises(RunError, match=r"clients\.json"):
            potluck.load(tmp_path / "run", model=net(), trust=True).export_client("bob")
    path.unlink()
    run(**settings, resume=True)
    assert path.read_bytes() == whole


def test_a_resume_knows_other_clients_from_these(tmp_path):
    whole = run(clients=by_client(), rounds=2)
    with pytest.raises(KeyboardInterrupt):
        run(clients=by_client(), rounds=2, out=tmp_path / "run", watcher=StopAfter(1))
    other = dict(zip(("carol", "alina", "bob"), by_client().values(), strict=True))
    with pytest.raises(RunError, match=r"another config: .*owners"):
        run(clients=other, rounds=2, out=tmp_path / "run", resume=True)
    lists = {"data": arrays(), "partition": [range(10), range(10, 30), range(30, 60)]}
    with pytest.raises(RunError, match="another config"):
        run(**lists, rounds=2, out=tmp_path / "run", resume=True)
    resumed = run(clients=by_client(), rounds=2, out=tmp_path / "run", resume=True)
    assert same_tensors(resumed.state, whole.state)


def test_clients_without_names_are_asked_for_by_number():
    result = run(data=arrays(), clients=3, method=OwnHeads(), levels={"all": 1.0})
    assert same_tensors(state_of(result.export_client("1")), state_of(result.export_client(1)))
    with pytest.raises(ConfigError, match=r"client is 'alice', but clients of this run have no names: .* from 0 to 2"):
        result.export_client("alice")
    with pytest.raises(ConfigError, match="there is no client 3; they are numbered from 0 to 2"):
        result.export_client(3)
