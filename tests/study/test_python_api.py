"""`potluck.run`: a network and data of one's own, in a few lines of Python."""

import json

import numpy as np
import pytest
import torch
from small_experiment import StopAfter, content, without_seconds
from torch import nn

import potluck
from potluck.core.errors import ConfigError, DataError, ModelError, RunError
from potluck.data import sources

LEVELS = {"server": 1.0, "phone": 0.5, "watch": 0.25}


class MyNet(nn.Module):
    """16 units at full width, with batch norm."""

    def __init__(self, width, outputs=3):
        super().__init__()
        units = int(16 * width)
        self.hidden, self.norm, self.head = nn.Linear(5, units), nn.BatchNorm1d(units), nn.Linear(units, outputs)

    def forward(self, inputs):
        return self.head(self.norm(self.hidden(inputs)).relu())


def arrays(count=180):
    """Three classes that are told apart by which of the first inputs is largest."""
    inputs = torch.randn(count, 5, generator=torch.Generator().manual_seed(0))
    return inputs, inputs[:, :3].argmax(1)


def broken(targets, clients, rng, owners):
    raise KeyError("a slip")


class Needy(MyNet):
    """It asks for something that nobody tells it."""

    def __init__(self, units):
        super().__init__(1.0)


class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return 180

    def __getitem__(self, index):
        inputs, targets = arrays()
        return inputs[index], int(targets[index])


def run(**changes):
    settings = {
        "model": MyNet,
        "data": arrays(),
        "levels": LEVELS,
        "clients": 6,
        "rounds": 3,
        "train": potluck.Train(lr=0.1, epochs=2),
        "engine": "serial",
    }
    return potluck.run(**{**settings, **changes})


def test_every_level_gets_a_plain_network_of_its_own_width():
    result = run(rounds=6)
    for level, ratio in LEVELS.items():
        net = result.export(level)
        assert type(net) is MyNet
        assert not net.training
        assert net.hidden.out_features == int(16 * ratio)
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
        assert net(torch.zeros(1, 5)).shape == (1, 3)
    assert result.accuracy["server"] > 0.5  # chance is a third
    assert result.directory is None


def test_the_network_that_is_exported_is_the_one_that_was_scored():
    inputs, targets = arrays()
    result = run(data=(inputs[:120], targets[:120]), test=(inputs[120:], targets[120:]))
    right = (result.export("phone")(inputs[120:]).argmax(1) == targets[120:]).float().mean()
    assert result.accuracy["phone"] == pytest.approx(float(right))


@pytest.mark.parametrize(
    "data",
    [arrays(), tuple(tensor.numpy() for tensor in arrays()), Pairs(), (arrays()[0].numpy(), arrays()[1].tolist())],
    ids=["tensors", "numpy", "torch-dataset", "numpy-and-list"],
)
def test_the_same_examples_give_the_same_run_however_they_come(data):
    expected = run(rounds=1)
    found = run(data=data, rounds=1)
    assert all(torch.equal(found.state[name], tensor) for name, tensor in expected.state.items())


def test_data_that_potluck_knows_have_a_name(tmp_path, monkeypatch):
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    named, given = (run(model=net, data=data, clients=10, rounds=2) for data in ("digits", sources.load("digits")))
    assert named.metrics[-1]["levels"] == given.metrics[-1]["levels"]
    assert named.accuracy["server"] > 0.5  # seen: 0.90 to 0.93; guessing gives 0.1
    monkeypatch.delenv("POTLUCK_DATA", raising=False)
    with pytest.raises(DataError, match="POTLUCK_DATA"):
        run(data="mnist")


def test_bytes_as_images():
    images = np.random.default_rng(0).integers(0, 256, (60, 5), dtype=np.uint8)
    result = run(data=(images, np.arange(60) % 3), rounds=1)
    assert set(result.accuracy) == set(LEVELS)


@pytest.mark.parametrize("method", ["fedavg", "heterofl"])
def test_a_method_by_name(method):
    assert "server" in run(method=method, rounds=1).models


def test_a_method_as_an_object():
    from potluck.methods.fedavg import FedAvg

    result = run(method=FedAvg(width=0.25), rounds=1)
    assert {name: net.hidden.out_features for name, net in result.models.items()} == dict.fromkeys(LEVELS, 4)


def test_the_seed_decides_everything():
    one, same, other = run(rounds=2), run(rounds=2), run(rounds=2, seed=1)
    assert all(torch.equal(one.state[name], tensor) for name, tensor in same.state.items())
    assert not all(torch.equal(one.state[name], tensor) for name, tensor in other.state.items())


def test_pytorchs_own_generator_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    run(rounds=1)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.whole
def test_a_network_written_where_no_worker_can_import_it():
    """As in a notebook: the class lives in this function, and the clients in other processes."""

    class Local(MyNet):
        pass

    here = run(model=lambda width: Local(width), rounds=1)
    there = run(model=lambda width: Local(width), rounds=1, engine="local", workers=1)
    assert all(torch.equal(there.state[name], tensor) for name, tensor in here.state.items())


def test_a_recorded_run_can_be_resumed(tmp_path):
    whole = run(out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(out=tmp_path / "cut", watcher=StopAfter(1))
    resumed = run(out=tmp_path / "cut", resume=True)
    assert resumed.directory == tmp_path / "cut"
    assert without_seconds(resumed.metrics) == without_seconds(whole.metrics)
    one, other = content(tmp_path / "whole"), content(tmp_path / "cut")
    for name in ("config.toml", "final.safetensors", *(f"models/{level}.safetensors" for level in LEVELS)):
        assert one[name] == other[name]
    lines = other["metrics.jsonl"].decode().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3]


def test_a_path_may_be_a_string(tmp_path):
    run(rounds=1, out=str(tmp_path / "run"))
    assert (tmp_path / "run" / "final.safetensors").exists()


def test_another_run_in_the_same_directory(tmp_path):
    run(rounds=1, out=tmp_path / "run")
    with pytest.raises(RunError, match="already holds a run"):
        run(rounds=1, out=tmp_path / "run")
    with pytest.raises(RunError, match=r"another config: .*train\.lr"):
        run(rounds=1, out=tmp_path / "run", resume=True, train=potluck.Train(lr=0.2, epochs=2))


def test_an_unknown_level():
    with pytest.raises(ConfigError, match=r"no model for level 'wach'; .*server, phone, watch"):
        run(rounds=1).export("wach")


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        ({"model": lambda width: MyNet(width, outputs=2)}, ModelError, "has 2 outputs.*needs 3"),
        ({"model": lambda width: MyNet(width, outputs=9)}, ModelError, "has 9 outputs.*needs 3"),
        ({"model": lambda width: "net"}, ModelError, "should return an nn.Module"),
        ({"model": lambda: MyNet(1.0)}, ModelError, "for level 'server' fails"),
        ({"data": (torch.zeros(10, 7), torch.arange(10) % 3)}, ModelError, r"cannot run on an input of shape \(7,\)"),
        (
            {"data": (torch.zeros(10, 5).long(), torch.arange(10) % 3)},
            ModelError,
            r"cannot run on an input of shape \(5,\) of whole numbers: .*dtype",
        ),
        (
            {"data": (torch.zeros(10, 5).long(), torch.arange(10) % 3), "model": nn.Sequential(nn.Linear(5, 3))},
            ModelError,
            "cannot run on an input of 1x5 whole numbers: .*dtype",
        ),
        ({"levels": {"a": 0.0}}, ConfigError, "levels.a is 0"),
        ({"levels": {"a": 1.5}}, ConfigError, "levels.a is 1.5"),
        ({"levels": {"a": -1}}, ConfigError, "levels.a is -1"),
        ({"levels": {}}, ConfigError, "levels is empty"),
        ({"clients": 0}, ConfigError, "clients is 0"),
        ({"clients": 145}, DataError, "at most 144 clients"),
        ({"rounds": 0}, ConfigError, "rounds is 0"),
        ({"rounds": "ten"}, ConfigError, "rounds is 'ten'"),
        ({"method": "heterfl"}, ConfigError, "did you mean 'heterofl'"),
        ({"partition": "dirichlt"}, ConfigError, "did you mean 'dirichlet'"),
        ({"partition": {"name": "dirichlet", "alhpa": 1}}, ConfigError, "did you mean 'alpha'"),
        ({"engine": "seriel"}, ConfigError, "did you mean 'serial'"),
        ({"engine": "local", "workers": -1}, ConfigError, "workers"),
        ({"train": potluck.Train(lr=-1)}, ConfigError, "lr is -1"),
        ({"test": 1.5}, DataError, "test is 1.5"),
        ({"test": 0.0}, DataError, "test is 0.0"),
        ({"data": None}, DataError, "data is None; give data="),
        ({"data": "/no/such/folder"}, DataError, "there is no folder /no/such/folder"),
        ({"data": "digit"}, DataError, "no folder 'digit', and there is no data set 'digit'; did you mean 'digits'"),
        ({"proxy": "digit"}, DataError, "did you mean 'digits'"),
        ({"data": {"alice": arrays()}}, DataError, "dictionary with the key 'alice'.*give it as clients= instead"),
        ({"data": {}}, DataError, "data is a dictionary"),
        (
            {"data": (arrays()[0], torch.zeros(180, 3))},
            DataError,
            "labels are float32, not whole numbers; .* or 'multi-label'",
        ),
        ({"levels": [1, 0.5]}, ConfigError, r"levels is \[1, 0.5\], but it should be a dictionary"),
        ({"levels": 0.5}, ConfigError, "levels is 0.5, but it should be a dictionary"),
        ({"train": {"lrr": 0.1}}, ConfigError, "did you mean 'lr'"),
        ({"train": {"lr": -1.0}}, ConfigError, "lr is -1"),
        ({"train": 0.1}, ConfigError, "train is 0.1, but it should be a potluck.Train or a dictionary"),
        ({"train": potluck.Train(optimizer=nn.Linear)}, ConfigError, "optimizer is .*Linear.*should be a name"),
        ({"train": potluck.Train(schedule=lambda round: -1)}, ConfigError, r"schedule\(0\) is -1, but it should be"),
        ({"guard": {"bund": 1.0}}, ConfigError, "did you mean 'bound'"),
        ({"method": 3}, ConfigError, "method is 3, but it should be a name"),
        ({"method": potluck.Method}, ConfigError, "should be a name, .* or an instance of a method"),
        ({"partition": [[0, 1], [2]]}, ConfigError, "gives examples to 2 clients, but clients is 6; leave it out"),
        ({"partition": 3}, ConfigError, r"partition is a int, .*function of \(targets, clients"),
        (
            {"partition": lambda targets: [[0]]},
            ConfigError,
            r"<lambda>\(targets\), but it should take \(targets, clients",
        ),
        (
            {"partition": broken},
            DataError,
            "the partition fails: broken in .*python_api.py.* raised KeyError: 'a slip'",
        ),
        (
            {"test": (torch.zeros(9, 4), torch.arange(9) % 3)},
            DataError,
            "the test examples are float32:4, .* float32:5",
        ),
        ({"test": (torch.zeros(9, 5).long(), torch.arange(9) % 3)}, DataError, "the test examples are int64:5"),
        ({"out": 3}, ConfigError, "out is 3, but it should be a path"),
        (
            {"train": potluck.Train(schedule="multistep")},
            ConfigError,
            "train: schedule is 'multistep', but milestones is",
        ),
        ({"partition": lambda *_: [[0], [1]]}, DataError, "gives examples to 2 clients, but clients is 6"),
        ({"partition": lambda *_: [[0]] * 5 + [[144]]}, DataError, "gives example 144 .* from 0 to 143"),
        ({"partition": lambda *_: 7}, DataError, "the partition gives a int, but it should give a list"),
        ({"assignment": ["server"]}, ConfigError, "assignment is a list"),
        (
            {"assignment": lambda *_: [0] * 5 + [9]},
            ConfigError,
            "gives a client level 9, but they are numbered from 0 to",
        ),
        ({"assignment": lambda *_: [0, 1]}, ConfigError, "should give a level's number for each of 6 clients"),
        ({"assignment": lambda *_: [0.5] * 6}, ConfigError, "should give a level's number for each of 6 clients"),
        ({"assignment": lambda *_: ["big"] * 6}, ConfigError, "should give a level's number for each of 6 clients"),
        ({"assignment": lambda *_: None}, ConfigError, "assignment gives None, but it should give a level's number"),
        ({"model": "heterofl-cn"}, ConfigError, "did you mean 'heterofl-cnn'"),
        ({"model": 3}, ConfigError, "model is 3, but it should be a network"),
        ({"model": Needy}, ModelError, "Needy cannot be built: .*'units'"),
        ({"watcher": print}, ConfigError, "some of the methods tuned, begins"),
    ],
)
def test_mistakes(changes, kind, says):
    with pytest.raises(kind, match=says):
        run(**changes)


def test_settings_may_be_dictionaries():
    expected = run(rounds=1)
    found = run(rounds=1, train={"lr": 0.1, "epochs": 2}, guard={}, method={"name": "heterofl"})
    assert all(torch.equal(found.state[name], tensor) for name, tensor in expected.state.items())


def test_a_network_by_name_as_in_a_config():
    result = run(model={"name": "heterofl-cnn", "hidden": [4, 8]}, data="digits", rounds=1)
    assert result.export("server")(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
    assert run(model="lg-mlp", data="digits", rounds=1).export("watch")(torch.zeros(1, 1, 8, 8)).shape == (1, 10)


def test_a_class_is_built_once_and_told_what_it_asks_for():
    class Plain(nn.Module):
        def __init__(self, classes):
            super().__init__()
            self.hidden, self.head = nn.Linear(5, 16), nn.Linear(16, classes)

        def forward(self, inputs):
            return self.head(self.hidden(inputs).relu())

    one, same = run(model=Plain, rounds=1), run(model=Plain, rounds=1)
    assert one.export("phone").hidden.out_features == 8
    assert one.export("phone").head.out_features == 3
    assert all(torch.equal(one.state[name], tensor) for name, tensor in same.state.items())


def test_a_partition_of_ones_own_may_return_lists():
    def by_turns(targets, clients, rng, owners):
        return [list(range(client, len(targets), clients)) for client in range(clients)]

    holdings = run(partition=by_turns, rounds=1).experiment.holdings
    assert [holdings.of(client).tolist() for client in range(6)] == [list(range(client, 144, 6)) for client in range(6)]


def test_an_assignment_of_ones_own_may_be_a_plain_function(tmp_path):
    def by_turns(clients, levels, round, seed):
        return [client % len(levels) for client in range(clients)]

    result = run(assignment=by_turns, rounds=1, out=tmp_path / "run")
    assert {name: found["clients"] for name, found in result.metrics[0]["levels"].items()} == dict.fromkeys(LEVELS, 2)
    assert "by_turns" in (tmp_path / "run" / "config.toml").read_text()


def test_owners_by_name_are_clients():
    inputs, targets = arrays()
    names = ["carol", "alice", "bob"] * 40
    examples, test = potluck.Arrays(inputs[:120], targets[:120]), potluck.Arrays(inputs[120:], targets[120:])
    data = potluck.Dataset(examples, test, 3, owners=names)
    holdings = run(data=data, partition="natural", clients=3, rounds=1).experiment.holdings
    assert [holdings.of(client).tolist() for client in range(3)] == [list(range(at, 120, 3)) for at in range(3)]
    with pytest.raises(DataError, match="owners has 119 entries for 120 training examples"):
        run(data=potluck.Dataset(examples, test, 3, owners=names[1:]), partition="natural", clients=3)


def test_a_watcher_may_have_one_method_alone():
    class Counts:
        rounds = 0

        def round_done(self, record):
            self.rounds = record["round"]

    watcher = Counts()
    run(rounds=2, watcher=watcher)
    assert watcher.rounds == 2


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"clients": 0}, "clients is 0, but it should be greater than or equal to 1"),
        ({"rounds": "ten"}, "rounds is 'ten', but it should be a whole number"),
        ({"levels": {}}, "levels is empty; name at least one device class, such as {'server': 1.0}"),
        ({"train": {"lrr": 1}}, "train has no 'lrr'; did you mean 'lr'?"),
        ({"train": {"epochs": 0}}, "train: epochs is 0, but it should be greater than or equal to 1"),
        ({"method": {"name": "heterofl", "maskin": 1}}, "method: heterofl has no 'maskin'; did you mean 'masking'?"),
        ({"method": {"masking": "zero"}}, "method is {'masking': 'zero'}, but it should be a name"),
        ({"partition": {"name": "dirichlet", "alpha": 0}}, "partition: alpha is 0, but it should be greater than 0"),
        ({"seed": "a"}, "seed is 'a', but it should be a whole number"),
        ({"seed": -1}, "seed is -1, but it should be greater than or equal to 0"),
        ({"engine": {"name": "local"}}, "engine is {'name': 'local'}, but it should be 'local' or 'serial'"),
        ({"test": 0}, "test is 0, which would hold out 0 of 180 examples"),
        ({"test": 2.0}, "give a share between 0 and 1, such as 0.2"),
        ({"model": [nn.Sequential(nn.Flatten(), nn.Linear(5, 3))]}, "model is [Sequential( (0): Flatten"),
        ({"model": {"name": "heterofl-cnn", "hiden": [4]}}, "model: heterofl-cnn has no 'hiden'"),
    ],
)
def test_a_mistake_in_python_is_told_in_the_words_of_python(wrong, sentence):
    with pytest.raises((ConfigError, DataError)) as caught:
        run(**wrong)
    assert sentence in str(caught.value)
    assert "[" not in str(caught.value).split(" ")[0]  # no section of a config
    assert "\n" not in str(caught.value)


def test_numbers_of_numpy_and_pytorch_are_numbers():
    levels = {"server": np.float32(1.0), "watch": torch.tensor(0.25)}
    train = {"lr": np.float32(0.1), "epochs": np.int64(1)}
    result = run(clients=np.int64(6), rounds=np.int32(1), seed=np.int64(2), levels=levels, train=train)
    assert set(result.accuracy) == {"server", "watch"}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda net: potluck.plan(net, "1x5", 0.5), "example is '1x5', but it should be a tensor"),
        (lambda net: potluck.plan(net, np.zeros((1, 5)), 0.5), "it should be a tensor with a batch of one input"),
        (lambda net: potluck.plan("net", torch.zeros(1, 5), 0.5), "model is 'net', but it should be a network"),
        (lambda net: potluck.plan(net, torch.zeros(1, 5), "0.5"), "width is '0.5', but it should be above 0"),
        (lambda net: potluck.costs(net, [1, 0.5], torch.zeros(1, 5)), "levels is [1, 0.5], but it should be a dict"),
        (lambda net: potluck.costs(net, LEVELS, None), "example is None, but it should be a tensor"),
        (lambda net: potluck.costs("net", LEVELS, torch.zeros(1, 5)), "model is 'net', but it should be a network"),
    ],
)
def test_plan_and_costs_say_what_they_want(call, sentence):
    with pytest.raises(ConfigError) as caught:
        call(nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)))
    assert sentence in str(caught.value)
