"""`[method] server`: one of several things with settings of its own, from a file, the command line and Python."""

import pytest
import torch
from small_experiment import SMALL, interrupted, run_config, without_seconds, write_config

import potluck
from potluck.core.errors import ConfigError
from potluck.methods.heterofl import HeteroFL
from potluck.parts.server_optimizer import Adam, Momentum
from potluck.study.config import read_config, write_toml

ADAM = SMALL.replace('name = "heterofl"', 'name = "heterofl"\nserver = { name = "adam", lr = 0.1, beta2 = 0.9 }')
SECTION = SMALL.replace("[train]", '[method.server]\nname = "momentum"\nlr = 1\n\n[train]')


def test_a_table_in_a_line_or_a_section(tmp_path):
    assert read_config(write_config(tmp_path, ADAM), []).method == HeteroFL(server=Adam(lr=0.1, beta2=0.9))
    assert read_config(write_config(tmp_path, SECTION), []).method == HeteroFL(server=Momentum(lr=1.0))
    assert read_config(write_config(tmp_path), []).method.server is None


def test_the_config_in_effect_has_every_setting_and_is_read_as_the_same(tmp_path):
    resolved = read_config(write_config(tmp_path, ADAM), []).resolved()
    assert resolved["method"]["server"] == {"name": "adam", "lr": 0.1, "beta1": 0.9, "beta2": 0.9, "tau": 0.001}
    again = read_config(write_config(tmp_path, write_toml(resolved)), [])
    assert again.method == HeteroFL(server=Adam(lr=0.1, beta2=0.9))
    assert "server" not in read_config(write_config(tmp_path), []).resolved()["method"]


def test_another_name_drops_the_options_of_the_one_before(tmp_path):
    path = write_config(tmp_path, ADAM)
    changed = read_config(path, ["method.server.name=momentum", "method.server.lr=0.5"])
    assert changed.method.server == Momentum(lr=0.5)
    assert read_config(path, ["method.server.lr=0.5"]).method.server == Adam(lr=0.5, beta2=0.9)


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ('"adam"', "[method] server is 'adam', but it should be a table"),
        ("{ lr = 0.1 }", "[method.server] needs a 'name': 'momentum', 'adagrad', 'yogi' or 'adam'"),
        (
            '{ name = "adm", lr = 1 }',
            "[method.server] name is 'adm', but it should be 'momentum', 'adagrad', 'yogi' or ",
        ),
        ("{ name = 3 }", "[method.server] name is 3, but it should be 'momentum'"),
        ('{ name = "adam" }', "[method.server] adam needs 'lr'"),
        ('{ name = "adam", lr = 0 }', "[method.server] lr is 0, but it should be a finite number above 0"),
        (
            '{ name = "adam", lr = 1, beta1 = 1 }',
            "[method.server] beta1 is 1, but it should be a number from 0 to less",
        ),
        ('{ name = "momentum", lr = 1, beta2 = 0.9 }', "[method.server] momentum has no 'beta2'"),
    ],
)
def test_mistakes_are_named(tmp_path, server, message):
    path = write_config(tmp_path, SMALL.replace('name = "heterofl"', f'name = "heterofl"\nserver = {server}'))
    with pytest.raises(ConfigError) as caught:
        read_config(path, [])
    assert str(caught.value).startswith(message)
    assert "a.toml:21)" in str(caught.value)


@pytest.mark.parametrize("method", ["fedhm", "flanc", "splitmix"])
def test_methods_that_cannot_take_one_refuse_it(tmp_path, method):
    with pytest.raises(ConfigError, match=rf"\[method\] {method} has no 'server'"):
        read_config(write_config(tmp_path, ADAM.replace('name = "heterofl"', f'name = "{method}"')), [])


def small(width):
    hidden = round(8 * width)
    return torch.nn.Sequential(torch.nn.Linear(4, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 2))


def python_run(method):
    inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    return potluck.run(
        model=small,
        data=(inputs, (inputs[:, 0] > 0).long()),
        levels={"server": 1.0, "watch": 0.5},
        clients=4,
        rounds=2,
        method=method,
        engine="serial",
        watcher=None,
    )


def test_from_python_by_name_or_as_an_object():
    named = python_run({"name": "heterofl", "server": {"name": "adam", "lr": 0.1}})
    ready = python_run(HeteroFL(server=Adam(lr=0.1)))
    assert named.experiment.method == ready.experiment.method
    assert all(torch.equal(tensor, ready.state[name]) for name, tensor in named.state.items())
    with pytest.raises(ConfigError, match=r"^server: lr is -1, but it should be a finite number above 0"):
        python_run(HeteroFL(server=Adam(lr=-1)))
    with pytest.raises(ConfigError, match=r"^server: name is 'sgd', but it should be"):
        python_run({"name": "heterofl", "server": {"name": "sgd"}})


def test_a_resumed_run_goes_on_with_the_moments_it_had(tmp_path):
    config = write_config(tmp_path, ADAM)
    whole = run_config(config, tmp_path / "whole")
    resumed = run_config(config, interrupted(config, tmp_path / "cut"), resume=True)
    assert "moments/v/head.weight" in whole.state
    assert set(whole.state) == set(resumed.state)
    assert all(torch.equal(tensor, resumed.state[name]) for name, tensor in whole.state.items())
    assert without_seconds(whole.metrics) == without_seconds(resumed.metrics)
    plain = run_config(write_config(tmp_path), None)
    for key in ("bytes_down", "bytes_up", "macs", "failures"):
        assert [record[key] for record in whole.metrics] == [record[key] for record in plain.metrics]
    assert {name: set(net.state_dict()) for name, net in whole.models.items()} == {
        name: set(net.state_dict()) for name, net in plain.models.items()
    }
