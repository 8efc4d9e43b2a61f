"""Methods with a server optimiser: the contract, what clients are sent, what is exported, and that they learn."""

from __future__ import annotations

import pytest
import torch
from clouds import federation, learned

from potluck import methods
from potluck.contract import CHECKS
from potluck.contract.bench import make_bench
from potluck.contract.playing import serially
from potluck.core.method import Method
from potluck.core.names import inside, outside
from potluck.core.server import first_state
from potluck.core.tensors import size_in_bytes
from potluck.parts.server_optimizer import MOMENTS, Adagrad, Adam, Momentum, Optimizer, Yogi

TAKERS = ["fedavg", "fednova", "fedprox", "fedrolex", "fjord", "heterofl", "scaffold"]
OPTIMIZERS: list[Optimizer] = [Momentum(lr=0.5), Adagrad(lr=0.1), Yogi(lr=0.1), Adam(lr=0.1)]
OTHERWISE = {
    "one level is FedAvg",  # a step is not the mean
    "nobody trains, nothing changes",  # Adam's v falls; see below
}
BY_METHOD = {  # the others do not depend on the method
    "its settings are a config",
    "its payload survives the wire",
    "it leaves its inputs alone",
    "the order of updates does not matter",
    "what nobody sends survives",
    "a client needs only its payload",
    "an exported model is plain",
}


def made(name: str, server: Optimizer | None, **settings: object) -> Method:
    return methods.find(name)(server=server, **settings)


def test_those_that_take_one_are_known() -> None:
    assert [name for name in methods.names() if "server" in methods.find(name).__dataclass_fields__] == TAKERS


@pytest.mark.parametrize("title", [title for title in CHECKS if title not in OTHERWISE])
@pytest.mark.parametrize("name", TAKERS)
def test_the_contract_is_kept(name: str, title: str) -> None:
    if title in BY_METHOD or name == "heterofl":
        CHECKS[title](made(name, Adam(lr=0.1)))


@pytest.mark.parametrize("name", TAKERS)
def test_if_nobody_trains_no_weight_moves(name: str) -> None:
    method = made(name, Adam(lr=0.1))
    bench = make_bench(method)
    state = method.init(bench.context())
    updates = (bench.untouched(state, client) for client in bench.clients())
    after = outside(MOMENTS, method.aggregate(state, updates, bench.context()))
    for name, tensor in outside(MOMENTS, state).items():
        assert tensor.equal(after[name])


@pytest.mark.parametrize("name", TAKERS)
def test_no_client_is_sent_a_moment_and_no_model_has_one(name: str) -> None:
    plain, method = made(name, None), made(name, Adam(lr=0.1))
    bench = make_bench(method)
    state, ctx = serially(bench).state, bench.context(1)
    assert any(bool(tensor.any()) for tensor in inside(MOMENTS, state).values())
    before = plain.init(ctx)
    for client in bench.clients():
        sent, usual = method.distribute(state, client, ctx), plain.distribute(before, client, ctx)
        assert list(sent) == list(usual)
        assert size_in_bytes(sent) == size_in_bytes(usual)
    for level in bench.experiment.admitted():
        exported = method.export(state, level, ctx).state_dict()
        assert set(exported) == set(plain.export(before, level, ctx).state_dict())


@pytest.mark.parametrize("name", TAKERS)
def test_a_full_step_without_momentum_is_the_mean(name: str) -> None:
    plain, stepping = (serially(make_bench(made(name, each))).state for each in (None, Momentum(lr=1.0, beta=0.0)))
    for key, tensor in plain.items():
        torch.testing.assert_close(stepping[key], tensor, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("per_size", ["none", "norms"])
@pytest.mark.parametrize("name", ["heterofl", "fjord"])
def test_what_every_size_has_of_its_own_has_moments_of_its_own(name: str, per_size: str) -> None:
    method = made(name, Adam(lr=0.1), per_size=per_size)
    site, _ = federation(method)
    state = first_state(method, site.context(0))
    trained = {key for key in outside(MOMENTS, state) if key.endswith(("weight", "bias"))}
    assert {key for key in state if key.startswith(f"{MOMENTS}/v/")} == {f"{MOMENTS}/v/{key}" for key in trained}
    assert ("0.5/1.weight" in trained) == (per_size == "norms")


@pytest.mark.whole
@pytest.mark.parametrize("server", OPTIMIZERS, ids=lambda each: each.name)
@pytest.mark.parametrize("name", ["heterofl", "fedprox"])
def test_it_learns(name: str, server: Optimizer) -> None:
    settings = {"width": 0.125} if name == "fedprox" else {}
    found = learned(made(name, server, **settings))
    # Chance is 0.25, and no client has every class. Over five seeds the lowest was 0.87.
    assert found["full"] > 0.75
