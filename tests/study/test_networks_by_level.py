"""A network for every level, related to the others or not, for methods that take any."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from small_experiment import StopAfter, content, without_seconds
from torch import nn

import potluck
from potluck import methods
from potluck.core.errors import ConfigError, ModelError
from potluck.core.means import NameMean
from potluck.core.names import inside, under
from potluck.core.tensors import state_of


@dataclass(frozen=True)
class Apart(potluck.Method):
    """FedAvg of every level by itself; the server keeps its tensors as `<level>/<name>`."""

    takes_any_networks: ClassVar[bool] = True

    def trains(self, level, ctx):
        return level

    def init(self, ctx):
        return {name: t for each in ctx.task.levels for name, t in under(each.name, state_of(ctx.build(each))).items()}

    def distribute(self, state, client, ctx):
        return inside(client.level.name, state)

    def aggregate(self, state, updates, ctx):
        mean = NameMean(state)
        for update in updates:
            mean.add(under(update.client.level.name, update.payload), update.client.size)
        return mean.result()


class Wide(nn.Module):
    """A network whose last layer is called `out`."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(5, 24), nn.Linear(24, 3)

    def forward(self, inputs):
        return self.out(self.hidden(inputs).relu())


def deep():
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))


def drawn(make, seed=0):
    """A ready-made network, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def arrays(count=180):
    inputs = torch.randn(count, 5, generator=torch.Generator().manual_seed(0))
    return inputs, inputs[:, :3].argmax(1)


def run(**changes):
    settings = {
        "model": {"a": drawn(Wide), "b": drawn(deep)},
        "data": arrays(),
        "levels": {"a": 0.5, "b": 0.5},
        "clients": 6,
        "rounds": 6,
        "method": Apart(),
        "cohort": 6,
        "train": potluck.Train(lr=0.1, epochs=2),
        "engine": "serial",
        "watcher": None,
    }
    return potluck.run(**{**settings, **changes})


@pytest.fixture(scope="module")
def result():
    return run()


def test_every_level_gets_the_network_that_was_given_for_it(result):
    a, b = result.export("a"), result.export("b")
    assert type(a) is Wide
    assert [type(layer) for layer in b] == [type(layer) for layer in deep()]
    assert not a.training
    assert not b.training
    assert a(torch.zeros(2, 5)).shape == b(torch.zeros(2, 5)).shape == (2, 3)
    assert min(result.accuracy.values()) > 0.6  # seen: 0.78 and 0.89; chance is a third


def test_the_servers_state_is_by_level(result):
    names = {f"a/{name}" for name in Wide().state_dict()} | {f"b/{name}" for name in deep().state_dict()}
    assert set(result.state) == names
    for level in ("a", "b"):
        own = inside(level, result.state)
        assert all(torch.equal(tensor, own[name]) for name, tensor in result.export(level).state_dict().items())


def test_levels_of_one_ratio_and_of_any_order_keep_their_own(result):
    """Ratios are the methods' business: what network a level has is in its name alone."""
    other = run(levels={"a": 0.25, "b": 1.0})
    assert type(other.export("a")) is Wide
    assert other.accuracy == result.accuracy


def test_levels_do_not_disturb_each_other():
    """With another network for b, a's comes out as before, bit for bit: clients of b had no part in it."""
    first = run(model={"a": drawn(Wide), "b": drawn(deep)}, step="plain")  # in a stack, who else is there shows
    other = run(model={"a": drawn(Wide), "b": drawn(Wide, seed=5)}, step="plain")
    one, two = inside("a", first.state), inside("a", other.state)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_every_level_has_its_own_head(result):
    heads = result.experiment.task.heads
    assert heads == {"a": ("out.weight", "out.bias"), "b": ("5.weight", "5.bias")}
    levels = result.experiment.task.levels
    assert [result.experiment.task.head(level) for level in levels] == list(heads.values())


def test_costs_and_bytes_are_those_of_each_network(result):
    expected = {"a": drawn(Wide), "b": drawn(deep)}
    for cost in result.costs:
        net = expected[cost.level]
        assert cost.parameters == sum(p.numel() for p in net.parameters())
        assert cost.bytes_down == cost.bytes_up == sum(t.numel() * t.element_size() for t in net.state_dict().values())
    assert {cost.level: cost.macs for cost in result.costs} == {"a": 5 * 24 + 24 * 3, "b": 5 * 8 + 8 * 8 + 8 * 3}


def test_the_networks_that_were_given_are_left_alone():
    given = {"a": drawn(Wide), "b": drawn(deep)}
    before = {level: {name: t.clone() for name, t in net.state_dict().items()} for level, net in given.items()}
    run(model=given, rounds=1)
    for level, net in given.items():
        assert all(torch.equal(tensor, before[level][name]) for name, tensor in net.state_dict().items())


def test_functions_that_make_networks_are_drawn_from_the_seed():
    one, same, other = (run(model={"a": Wide, "b": deep}, rounds=1, seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(one.state[name], tensor) for name, tensor in same.state.items())
    assert not torch.equal(one.state["a/out.weight"], other.state["a/out.weight"])
    assert run(model={"a": Wide, "b": drawn(deep)}, rounds=1).accuracy.keys() == {"a", "b"}


def test_workers_give_the_same_bits(result):
    there = run(engine="local", workers=2)
    assert all(torch.equal(there.state[name], tensor) for name, tensor in result.state.items())
    assert without_seconds(there.metrics) == without_seconds(result.metrics)


def test_a_recorded_run_can_be_resumed(tmp_path, result):
    with pytest.raises(KeyboardInterrupt):
        run(out=tmp_path / "run", watcher=StopAfter(2))
    resumed = run(out=tmp_path / "run", resume=True)
    assert all(torch.equal(resumed.state[name], tensor) for name, tensor in result.state.items())
    assert {"models/a.safetensors", "models/b.safetensors"} <= set(content(tmp_path / "run"))


def test_more_networks_than_levels_are_no_mistake():
    found = run(model={"a": drawn(Wide), "b": drawn(deep), "c": drawn(Wide)}, rounds=1)
    assert set(found.models) == {"a", "b"}


# ---- mistakes ----


@pytest.mark.parametrize("method", [name for name in methods.names() if not methods.find(name).takes_any_networks])
def test_methods_that_train_sizes_of_one_network_refuse_in_a_sentence(method):
    with pytest.raises(ConfigError) as refused:
        run(method=method)
    name = methods.find(method).__name__
    assert str(refused.value) == (
        f"every level has a network of its own, but {name} trains sizes of one network; "
        "give one network, or choose a method that takes any"
    )


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        ({"levels": {"a": 0.5, "c": 0.5}}, ConfigError, "^model has no network for level 'c'; it has a, b$"),
        ({"levels": {"A": 0.5}}, ConfigError, "^model has no network for level 'A'; it has a, b$"),
        ({"model": {"a": Wide, "b": lambda: nn.Linear(5, 2)}}, ModelError, "level 'b' .* has 2 outputs.* needs 3"),
        ({"model": {"a": Wide, "b": lambda: nn.Linear(4, 3)}}, ModelError, "level 'b' .* cannot run on an input"),
        ({"model": {"a": Wide, "b": lambda: "net"}}, ModelError, "returns str, but it should return an nn.Module"),
        ({"model": {"a": Wide, "b": lambda width: Wide()}}, ModelError, "for level 'b' fails"),
        ({"model": {}}, ConfigError, "model has no network for level 'a'"),
    ],
)
def test_mistakes_name_the_level(changes, kind, says):
    with pytest.raises(kind, match=says) as refused:
        run(**changes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("net", "level 'b' fails: 'str' object is not callable"),
        (7, "level 'b' fails: 'int' object"),
        (nn.Linear, "level 'b' fails"),
    ],
)
def test_what_is_no_network_is_refused(given, says):
    with pytest.raises(ModelError, match=says):
        run(model={"a": drawn(Wide), "b": given})
