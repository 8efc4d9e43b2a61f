"""A resume must begin with the weights that the run began with; otherwise it is refused, and nothing changes."""

import sys

import pytest
import torch
from small_experiment import SMALL, StopAfter, interrupted, run_config, write_config
from test_networks_by_level import Apart
from torch import nn

import potluck
from potluck.core.errors import RunError
from potluck.study.files import read_toml


def network(seed=0, **changed):
    """A ready-made network, always the same but for what is changed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    with torch.no_grad():
        for name, value in changed.items():
            net.state_dict()[name.replace("_", ".", 1)].view(-1)[0] = value
    return net


def arrays(count=120, inputs=5, seed=0):
    numbers = torch.randn(count, inputs, generator=torch.Generator().manual_seed(seed))
    return numbers, numbers[:, :3].argmax(1)


def run(model, directory, **changes):
    settings = {
        "data": arrays(),
        "levels": {"server": 1.0, "phone": 0.5},
        "clients": 4,
        "rounds": 3,
        "train": potluck.Train(lr=0.1, epochs=1),
        "engine": "serial",
        "watcher": None,
        "out": directory,
    }
    return potluck.run(**{**settings, "model": model, **changes})


def cut(model, directory, **changes):
    """A run that stopped after its first round."""
    with pytest.raises(KeyboardInterrupt):
        run(model, directory, watcher=StopAfter(1), **changes)
    return directory


def traces(directory):
    """Every file below a directory, with what it holds and when it was written."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.rglob("*") if path.is_file()}


def refused(directory, resume):
    """The sentence that a resume is refused with; nothing on disk is touched."""
    before = traces(directory)
    with pytest.raises(RunError) as caught:
        resume()
    assert traces(directory) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def said_of(directory):
    return f"{directory} holds a run that began with other weights of the network; give it the same"


@pytest.mark.parametrize(
    "other",
    [network(seed=1), network(**{"0_weight": 0.5}), network(**{"1_running_mean": 1e-6}), network(**{"3_bias": -0.0})],
    ids=["all", "one weight", "a statistic", "a sign"],
)
def test_other_weights_of_a_network_are_refused(tmp_path, other):
    start = network(**{"3_bias": 0.0})
    directory = cut(start, tmp_path / "run")
    assert refused(directory, lambda: run(other, directory, resume=True)) == said_of(directory)
    whole, resumed = run(start, tmp_path / "whole"), run(network(**{"3_bias": 0.0}), directory, resume=True)
    assert all(torch.equal(whole.state[name], tensor) for name, tensor in resumed.state.items())


def test_a_finished_run_is_refused_too(tmp_path):
    run(network(), tmp_path / "run")
    assert refused(tmp_path / "run", lambda: run(network(1), tmp_path / "run", resume=True)) == said_of(
        tmp_path / "run"
    )


def test_so_is_a_run_that_has_not_finished_a_round(tmp_path):
    class StopAtOnce(StopAfter):
        def begins(self, rounds, done):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(network(), tmp_path / "run", watcher=StopAtOnce(0))
    assert "other weights" in refused(tmp_path / "run", lambda: run(network(1), tmp_path / "run", resume=True))


def test_the_digest_of_the_weights_is_in_the_config(tmp_path):
    run(network(), tmp_path / "one", rounds=1)
    run(network(1), tmp_path / "other", rounds=1)
    run(lambda width: nn.Linear(5, 3), tmp_path / "drawn", rounds=1)
    one, other, drawn = (read_toml(tmp_path / name / "config.toml")["recipe"] for name in ("one", "other", "drawn"))
    assert len(one["weights"]) == 64
    assert one["weights"] != other["weights"]
    assert one["run"] != other["run"]
    assert "weights" not in drawn


def test_weights_that_the_seed_draws_are_the_same_anyway(tmp_path):
    def drawn(width):
        return nn.Sequential(nn.Linear(5, round(8 * width)), nn.ReLU(), nn.Linear(round(8 * width), 3))

    cut(drawn, tmp_path / "run")
    torch.manual_seed(99)
    resumed, whole = run(drawn, tmp_path / "run", resume=True), run(drawn, tmp_path / "whole")
    assert all(torch.equal(whole.state[name], tensor) for name, tensor in resumed.state.items())


def test_a_network_instead_of_a_function_is_refused(tmp_path):
    directory = cut(lambda width: nn.Linear(5, 3), tmp_path / "run")
    assert "other weights" in refused(directory, lambda: run(network(), directory, resume=True))


def test_other_weights_of_one_levels_network_are_refused(tmp_path):
    def model(seed):
        return {"server": network(), "phone": network(seed)}

    directory = cut(model(1), tmp_path / "run", method=Apart())
    found = refused(directory, lambda: run(model(2), directory, resume=True, method=Apart()))
    assert found == said_of(directory)
    swapped = {"server": network(1), "phone": network()}
    assert "other weights" in refused(directory, lambda: run(swapped, directory, resume=True, method=Apart()))
    run(model(1), directory, resume=True, method=Apart())


MODULE = """\
import torch
from torch import nn

class Digits(nn.Sequential):
    def __init__(self, hidden=8):
        super().__init__(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

net = Digits()
"""
OURS = 'model = { name = "heterofl-cnn", hidden = [4, 8, 8, 8] }'


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """Writes a config beside a module of its own, which is imported anew."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(module):
        sys.modules.pop("changing_net", None)
        (tmp_path / "changing_net.py").write_text(module)
        return write_config(tmp_path, SMALL.replace(OURS, 'model = "changing_net:net"'))

    yield write
    sys.modules.pop("changing_net", None)


@pytest.mark.parametrize("change", ["nn.init.zeros_(net[1].bias)", "net[3].weight.data[0, 0] += 1e-6"])
def test_a_network_of_a_config_whose_weights_changed_is_refused(beside, tmp_path, change):
    directory = interrupted(beside(MODULE), tmp_path / "run")
    config = beside(MODULE + change + "\n")
    assert refused(directory, lambda: run_config(config, directory, resume=True)) == said_of(directory)
    run_config(beside(MODULE), directory, resume=True)


# ---- other data ----


def pooled(width):
    """A network that takes inputs of any length."""
    return nn.Sequential(nn.AdaptiveAvgPool1d(4), nn.Linear(4, 3))


def test_data_of_another_shape_are_refused(tmp_path):
    directory = cut(pooled, tmp_path / "run", method="fedavg")
    others = arrays(inputs=6)
    found = refused(directory, lambda: run(pooled, directory, data=others, method="fedavg", resume=True))
    assert 'recipe.inputs ("float32:5" there, "float32:6" here)' in found


@pytest.mark.parametrize(
    "other",
    [
        arrays(40, seed=2),
        arrays(30, seed=3),
        None,
    ],
    ids=["more", "others", "none"],
)
def test_other_proxy_examples_are_refused(tmp_path, other):
    directory = cut(network(), tmp_path / "run", proxy=arrays(30, seed=2))
    refused(directory, lambda: run(network(), directory, proxy=other, resume=True))
    run(network(), directory, proxy=arrays(30, seed=2), resume=True)
