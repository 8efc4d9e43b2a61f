"""`potluck.load`: from a run directory back to networks, whether the run came from a config or from Python."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from small_experiment import StopAfter, interrupted, run_config, write_config
from torch import nn

import potluck
from potluck.core.errors import ConfigError, ModelError, RunError
from potluck.core.tensors import same_tensors, state_of
from potluck.report.inspection import panels_of
from potluck.study.config import read_config

LEVELS = {"server": 1.0, "watch": 0.5}


class Net(nn.Module):
    """Batch norm, so that its statistics have to be right as well."""

    def __init__(self):
        super().__init__()
        self.hidden, self.norm, self.head = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, inputs):
        return self.head(self.norm(self.hidden(inputs)).relu())


@dataclass(frozen=True)
class OwnHead(potluck.Method):
    """The head stays on its client."""

    shares_model: ClassVar[bool] = False

    def localize(self, job, ctx, personal):
        net = super().localize(job, ctx, personal)
        net.load_state_dict({**net.state_dict(), **personal})
        return net

    def collect(self, net, job, ctx):
        sent = state_of(net)
        return sent, {name: sent.pop(name) for name in ctx.task.head(job.client.level)}


def examples():
    inputs = torch.randn(90, 5, generator=torch.Generator().manual_seed(0))
    return inputs, inputs[:, :3].argmax(1)


def run(**changes):
    settings = {
        "model": Net(),
        "data": examples(),
        "levels": LEVELS,
        "clients": 4,
        "rounds": 2,
        "train": {"lr": 0.1, "epochs": 1, "batch_size": 60},
        "engine": "serial",
        "watcher": None,
    }
    return potluck.run(**{**settings, **changes})


def alike(one, other):
    return same_tensors(state_of(one), state_of(other))


def test_a_run_of_a_config(tmp_path):
    result = run_config(write_config(tmp_path), tmp_path / "run")
    recorded = potluck.load(tmp_path / "run")
    for level in ("big", "small"):
        net = recorded.export(level)
        assert type(net) is type(result.export(level))
        assert not net.training
        assert alike(net, result.export(level))
    assert recorded.accuracy == result.accuracy
    assert recorded.metrics == result.metrics
    assert recorded.levels == {"big": 1.0, "small": 0.5}


def test_a_finished_run_needs_no_data(tmp_path, monkeypatch):
    run_config(write_config(tmp_path), tmp_path / "run")
    monkeypatch.setattr("potluck.study.recorded.from_config", lambda *_: pytest.fail("it asks for the data"))
    potluck.load(tmp_path / "run").export("small")


def test_an_unfinished_run_gives_its_latest(tmp_path):
    path = write_config(tmp_path)
    interrupted(path, tmp_path / "cut", 2)
    two = run_config(path, tmp_path / "two", "task.rounds=2")
    assert alike(potluck.load(tmp_path / "cut").export("small"), two.export("small"))


def test_a_run_from_python_with_the_network_again(tmp_path):
    """Its first weights do not matter: they are replaced."""
    result = run(out=tmp_path / "run")
    recorded = potluck.load(tmp_path / "run", model=Net())
    for level in LEVELS:
        assert alike(recorded.export(level), result.export(level))


def test_a_run_from_python_without_its_network(tmp_path):
    run(out=tmp_path / "run")
    with pytest.raises(RunError, match=r"cannot be built: .*potluck.load\('.*run', model=net\) takes the network"):
        potluck.load(tmp_path / "run").export("watch")


def test_another_network(tmp_path):
    run(out=tmp_path / "run")
    other = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    with pytest.raises(ModelError, match="these weights are of another network"):
        potluck.load(tmp_path / "run", model=other).export("watch")


def test_a_run_from_python_whose_data_have_no_name(tmp_path):
    run(out=tmp_path / "run")
    with pytest.raises(RunError, match=r"came from Python.*resume=True gives a result that can export it"):
        potluck.load(tmp_path / "run", model=Net()).export(0.75)


def test_a_run_from_python_in_which_all_has_names_is_like_one_of_a_config(tmp_path):
    settings = {
        "model": {"name": "heterofl-cnn", "hidden": [4, 8]},
        "data": "digits",
        "partition": {"name": "dirichlet", "alpha": 1.0},
        "assignment": "blocks",
        "method": {"name": "fedrolex"},
        "clients": 24,
        "cohort": 2,
    }
    result = run(**settings, out=tmp_path / "run")
    config = read_config(tmp_path / "run" / "config.toml")
    assert config.resolved()["data"] == {
        "source": {"name": "digits"},
        "partition": {"name": "dirichlet", "alpha": 1.0, "min_size": 2},
        "validation": 0.0,
    }
    assert (config.method_name, config.resolved()["fleet"]["assignment"]) == ("fedrolex", {"name": "blocks"})
    recorded = potluck.load(tmp_path / "run")
    assert alike(recorded.export("watch"), result.export("watch"))
    assert recorded.export(0.75)(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
    assert alike(
        run_config(tmp_path / "run" / "config.toml", tmp_path / "again").export("watch"), result.export("watch")
    )
    assert isinstance(panels_of(recorded.run), list)


def test_a_partition_that_no_file_can_name_is_not_needed(tmp_path):
    def by_turns(targets, clients, rng, owners):
        return [range(client, len(targets), clients) for client in range(clients)]

    result = run(partition=by_turns, out=tmp_path / "run")
    assert alike(potluck.load(tmp_path / "run", model=Net()).export("watch"), result.export("watch"))


def test_files_from_python(tmp_path):
    result = run(out=tmp_path / "run")
    inputs, _ = examples()
    for source in (result, potluck.load(tmp_path / "run", model=Net())):
        net = source.export("watch", out=tmp_path / "new" / "net.pt2")
        with torch.no_grad():
            found = torch.export.load(tmp_path / "new" / "net.pt2").module()(inputs)
            torch.testing.assert_close(found, net(inputs), atol=1e-5, rtol=1e-5)
        with pytest.raises(ConfigError, match=r"should end in \.safetensors .* \.pt2 .* or \.onnx"):
            source.export("watch", out=str(tmp_path / "net.pt"))
    assert not (tmp_path / "net.pt").exists()


def test_a_network_that_torch_export_does_not_take(tmp_path):
    class Fickle(Net):
        def forward(self, inputs):
            return super().forward(inputs) if float(inputs.sum()) >= 0 else super().forward(-inputs)

    result = run(model=Fickle(), levels={"server": 1.0}, rounds=1)
    with pytest.raises(ModelError, match=r"torch.export does not take this network .*\.safetensors"):
        result.export("server", out=tmp_path / "net.pt2")
    assert list(tmp_path.iterdir()) == []


def test_clients_with_models_of_their_own(tmp_path, monkeypatch):
    result = run(method=OwnHead(), levels={"all": 1.0}, out=tmp_path / "run")
    recorded = potluck.load(tmp_path / "run", model=Net(), trust=True)
    with pytest.raises(ConfigError, match=r"export_client\(7\) gives that of client 7"):
        recorded.export("all")
    monkeypatch.setitem(recorded.__dict__, "experiment", result.experiment)
    assert alike(recorded.export_client(2, out=tmp_path / "two.safetensors"), result.export_client(2))
    assert (tmp_path / "two.safetensors").exists()


def test_what_is_asked_for_wrongly(tmp_path):
    run(out=tmp_path / "run")
    recorded = potluck.load(tmp_path / "run", model=Net())
    with pytest.raises(RunError, match="has no level 'wach'; it has server, watch"):
        recorded.export("wach")
    with pytest.raises(RunError, match=r"the ratio is 2, but it should be above 0 and at most 1"):
        recorded.export(2.0)
    with pytest.raises(ConfigError, match=r"clients of a level share a model: export\('server'\) gives it"):
        recorded.export_client(0)
    with pytest.raises(RunError, match="holds no run"):
        potluck.load(tmp_path)


def test_a_resumed_run_from_python_is_still_recognised(tmp_path):
    settings = {"model": "lg-mlp", "data": "digits", "clients": 24, "cohort": 2}
    with pytest.raises(KeyboardInterrupt):
        run(**settings, out=tmp_path / "run", watcher=StopAfter(1))
    whole = run(**settings)
    resumed = run(**settings, out=tmp_path / "run", resume=True)
    assert alike(whole.export("watch"), resumed.export("watch"))


def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))


def test_a_size_between_the_levels_of_a_run_whose_data_have_no_name(tmp_path):
    """Without batch norm nothing has to be measured, so that no data are needed."""
    result = run(model=plain(), out=tmp_path / "run")
    recorded = potluck.load(tmp_path / "run", model=plain())
    assert recorded.export(0.75)[0].out_features == 6
    assert alike(recorded.export(0.75), result.export(0.75))
    with pytest.raises(KeyboardInterrupt):
        run(model=plain(), out=tmp_path / "cut", watcher=StopAfter(1))
    one = run(model=plain(), rounds=1)
    assert alike(potluck.load(tmp_path / "cut", model=plain()).export("watch"), one.export("watch"))


def test_a_size_between_the_levels_from_a_result_that_was_resumed(tmp_path):
    same = Net()
    result = run(model=same, out=tmp_path / "run")
    resumed = run(model=same, out=tmp_path / "run", resume=True)
    net = resumed.export(0.75, out=tmp_path / "net.safetensors")
    assert net.hidden.out_features == 6
    assert not net.training
    assert alike(net, result.export(0.75))
    assert alike(result.export(1.0), result.export("server"))
    for wrong in (0, 1.5, None):
        with pytest.raises(RunError, match="but it should be above 0 and at most 1"):
            result.export(wrong)


def test_a_partition_that_no_file_can_name_is_said(tmp_path):
    lists = [range(0, 40), range(40, 72)]
    run(model="lg-mlp", data="digits", partition=lists, clients=2, cohort=2, out=tmp_path / "run")
    recorded = potluck.load(tmp_path / "run")
    with pytest.raises(RunError, match=r"or who holds them did: .*resume=True gives a result that can export it"):
        recorded.experiment  # noqa: B018


def test_what_is_no_path(tmp_path):
    with pytest.raises(ConfigError, match="run is 3, but it should be a path"):
        potluck.load(3)
    with pytest.raises(ConfigError, match="out is 3, but it should be a path"):
        run(rounds=1).export("watch", out=3)
    run(out=tmp_path / "run")
    with pytest.raises(ConfigError, match="data_dir is 3"):
        potluck.load(tmp_path / "run", data_dir=3)
    with pytest.raises(RunError, match=r"config.toml is a file of a run, but it should be the run's directory: "):
        potluck.load(tmp_path / "run" / "config.toml")
