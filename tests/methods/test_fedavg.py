"""FedAvg: the weighted mean, one width for all, and who sits out."""

from __future__ import annotations

import pytest
import torch
from clouds import heads
from torch import nn

from potluck.core.errors import ConfigError
from potluck.core.method import Method
from potluck.core.networks import ByWidth
from potluck.core.types import Client, Context, Job, Level, Task, Update
from potluck.methods import find, names
from potluck.methods.fedavg import FedAvg
from potluck.methods.heterofl import HeteroFL

LARGE, MEDIUM, SMALL = Level("large", 0.8), Level("medium", 0.4), Level("small", 0.2)


def context() -> Context:
    example = (torch.zeros(1, 3), torch.zeros(1, dtype=torch.long))
    levels, networks = (SMALL, LARGE, MEDIUM), ByWidth(lambda width: nn.Linear(3, round(10 * width)))
    return Context(Task(networks, levels, 2, heads(levels, ()), example), 0, seed=1)


def test_the_mean_is_weighted_by_examples() -> None:
    state = {"w": torch.zeros(2)}
    updates = [
        Update(Client(0, LARGE, 10, (0,)), {"w": torch.tensor([1.0, 0.0])}),
        Update(Client(1, LARGE, 30, (1,)), {"w": torch.tensor([5.0, 2.0])}),
    ]
    assert FedAvg().aggregate(state, iter(updates), context())["w"].tolist() == [4.0, 1.5]


@pytest.mark.parametrize(
    ("width", "outputs", "admitted"),
    [
        (None, 8, [LARGE]),
        (0.8, 8, [LARGE]),
        (0.4, 4, [LARGE, MEDIUM]),
        (0.3, 3, [LARGE, MEDIUM]),
        (0.2, 2, [LARGE, MEDIUM, SMALL]),
        (1.0, 10, []),
    ],
)
def test_one_width_for_all_who_can_carry_it(width: float | None, outputs: int, admitted: list[Level]) -> None:
    method, ctx = FedAvg(width=width), context()
    assert [level for level in (LARGE, MEDIUM, SMALL) if method.admits(level, ctx)] == admitted
    state = method.init(ctx)
    assert state["weight"].shape == (outputs, 3)
    for level in admitted:
        client = Client(0, level, 4, (0,))
        job = Job(client, 0, method.distribute(state, client, ctx))
        assert method.localize(job, ctx, {}).weight.shape == (outputs, 3)
        exported = method.export(state, level, ctx)
        assert torch.equal(exported.weight, state["weight"])
        assert not exported.training


def test_everybody_is_sent_the_whole_state() -> None:
    state = {"w": torch.ones(2)}
    assert FedAvg().distribute(state, Client(0, SMALL, 1, ()), context()) == state


def test_an_export_is_a_copy() -> None:
    ctx = context()
    state = FedAvg().init(ctx)
    first = FedAvg().export(state, LARGE, ctx)
    first.weight.data.fill_(9)
    assert not torch.equal(FedAvg().export(state, LARGE, ctx).weight, first.weight)
    assert not (state["weight"] == 9).any()


def test_fedavg_is_what_a_method_does_that_changes_nothing() -> None:
    ctx = context()
    ours, bare = FedAvg().init(ctx), Method().init(ctx)
    assert all(torch.equal(ours[name], bare[name]) for name in ours)


def test_methods_are_found_by_name_or_path() -> None:
    assert names() == sorted(names())
    assert {"fedavg", "heterofl"} <= set(names())
    assert find("fedavg") is FedAvg
    assert find("heterofl") is HeteroFL
    assert find("potluck.methods.heterofl:HeteroFL", trusted=True) is HeteroFL


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("heterofi", "there is no method 'heterofi'; did you mean 'heterofl'"),
        ("math:pi", "method 'math:pi' is not a subclass of potluck.Method"),
        ("pathlib:Path", "method 'pathlib:Path' is not a subclass"),
        ("nowhere:X", "cannot load method 'nowhere:X'"),
    ],
)
def test_what_is_no_method_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find(name, trusted=True)


@pytest.mark.parametrize("name", names())
def test_every_method_names_its_paper(name: str) -> None:
    assert find(name).paper
