"""Whatever a client sends, the run goes on: it is left out with a reason, for every method and both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from liars import LIES, Corrupting, lying

from potluck import methods
from potluck.contract.bench import CLASSES, LEVELS, Bench, Small, patterns, training
from potluck.core.clock import Clock
from potluck.core.engine import Engine
from potluck.core.guard import Guard
from potluck.core.method import Method
from potluck.core.server import Failure, Ledger, Server, first_state
from potluck.core.store import Memory
from potluck.core.types import Tensors, Update
from potluck.data.assignment import Blocks
from potluck.data.dataset import Dataset
from potluck.data.partitions import IID
from potluck.engines import make_engine
from potluck.engines.local import Local
from potluck.study.experiment import assemble
from potluck.study.settings import FleetSection, Settings, TaskSection

HONEST = 3  # clients who tell no lie
CLIENTS = HONEST + len(LIES)
TOLD = dict(enumerate(LIES, start=HONEST))
EVERYBODY = {name: {"width": 0.25} for name in ("fedavg", "fednova", "fedprox")}  # so that all clients take part


@pytest.fixture(scope="module")
def workers() -> Iterator[Local]:
    engine = Local(2)
    yield engine
    engine.close()


def honest(name: str) -> Method:
    return methods.find(name)(**EVERYBODY.get(name, {}))


def with_liars(name: str, told: dict[int, str]) -> Method:
    return lying(methods.find(name), told)(**EVERYBODY.get(name, {}))


def crowd(method: Method) -> Bench:
    """A bench with enough clients for every lie."""
    settings = Settings(
        method=method,
        task=TaskSection(model="", rounds=3, calibration_clients=6),
        fleet=FleetSection(clients=CLIENTS, levels=LEVELS, cohort=CLIENTS),
        partition=IID(),
        assignment=Blocks(),
        train=replace(training(method), epochs=1, batch_size=4),
        seed=3,
    )
    return Bench(assemble(settings, Small, Dataset(patterns(4 * CLIENTS, 0), patterns(16, 1), CLASSES)))


def played(bench: Bench, engine: Engine, only: set[int] | None = None) -> tuple[Tensors, Tensors, Ledger]:
    """The state before and after a round, with only some of the clients if they are named."""
    experiment, clock = bench.experiment, Clock()
    engine.open(experiment.site, experiment.desk, Memory(), clock)
    before = first_state(bench.method, bench.context())
    cohort = [client for client in bench.clients() if only is None or client.id in only]
    after, ledger = Server(experiment.recipe, engine).play(before, cohort, bench.context())
    return before, after, ledger


def same(one: Tensors, other: Tensors) -> bool:
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("place", ["serial", pytest.param("local", marks=pytest.mark.whole)])
@pytest.mark.parametrize("name", methods.names())
def test_liars_are_left_out_and_the_rest_is_averaged(name: str, place: str, workers: Local) -> None:
    engine = workers if place == "local" else make_engine("serial")
    _, found, ledger = played(crowd(with_liars(name, TOLD)), engine)
    left_out = {failure.client: failure for failure in ledger.failures}
    assert set(left_out) == set(TOLD)
    for client, lie in TOLD.items():
        assert LIES[lie][1] in left_out[client].reason, lie
        assert left_out[client].round == 1
    _, expected, _ = played(crowd(honest(name)), make_engine("serial"), {*range(HONEST)})
    assert same(found, expected)


@pytest.mark.parametrize("name", methods.names())
def test_a_round_that_nobody_survives_changes_nothing(name: str) -> None:
    everybody = dict.fromkeys(range(CLIENTS), "not a number")
    before, after, ledger = played(crowd(with_liars(name, everybody)), make_engine("serial"))
    assert ledger.used == 0
    assert len(ledger.failures) == ledger.clients
    assert same(before, after)


def elsewhere(update: Update) -> Update:
    return replace(update, run="0123")


def late(update: Update) -> Update:
    return replace(update, round=update.round - 1)


def impostor(update: Update) -> Update:
    return replace(update, client=replace(update.client, id=update.client.id + 1))


STRANGERS: dict[str, tuple[Callable[[Update], Update], str]] = {
    "another run": (elsewhere, "run"),
    "another round": (late, "round"),
    "another client": (impostor, "client"),
}


@pytest.mark.parametrize("kind", STRANGERS)
@pytest.mark.parametrize("name", methods.names())
def test_an_answer_to_another_question_is_left_out(name: str, kind: str) -> None:
    change, word = STRANGERS[kind]
    engine = Corrupting(make_engine("serial"), lambda update: change(update) if update.client.id == 2 else update)
    _, found, ledger = played(crowd(honest(name)), engine)
    assert [failure.client for failure in ledger.failures] == [2]
    assert word in ledger.failures[0].reason
    _, expected, _ = played(crowd(honest(name)), make_engine("serial"), {*range(CLIENTS)} - {2})
    assert same(found, expected)


@pytest.mark.parametrize("lie", LIES)
def test_the_server_does_not_rely_on_what_clients_check(lie: str) -> None:
    """What the client's own side would have caught comes over the wire as it is."""
    change = LIES[lie][0]

    def corrupt(update: Update) -> Update:
        return replace(update, payload=change(update.payload)) if update.client.id == 3 else update

    told: list[Failure] = []
    bench = crowd(honest("heterofl"))
    engine, experiment = Corrupting(make_engine("serial"), corrupt), bench.experiment
    engine.open(experiment.site, experiment.desk, Memory(), Clock())
    server = Server(experiment.recipe, engine, client_failed=told.append)
    server.play(first_state(bench.method, bench.context()), bench.clients(), bench.context())
    assert [failure.client for failure in told] == [3]
    assert LIES[lie][1] in told[0].reason


@pytest.mark.parametrize("lie", ["not a number", "huge", "empty", "a name is unknown", "without values"])
def test_statistics_for_batch_norm_are_checked_too(lie: str) -> None:
    bench = crowd(honest("heterofl"))
    change = LIES[lie][0]

    def corrupt(update: Update) -> Update:
        wide = {name: tensor[None] for name, tensor in update.payload.items()}  # a lie changes a matrix
        changed = change(wide)
        flat = {name: tensor[0] if name in update.payload else tensor for name, tensor in changed.items()}
        return replace(update, payload=flat) if update.client.id == 3 else update

    engine, experiment, ledger = Corrupting(make_engine("serial"), corrupt), bench.experiment, Ledger()
    engine.open(experiment.site, experiment.desk, Memory(), Clock())
    server, ctx = Server(experiment.recipe, engine), bench.context()
    state = first_state(bench.method, ctx)
    jobs = server.jobs("calibrate", state, [[client] for client in bench.clients()], ctx)
    answers = list(server.exchange(jobs, ctx, ledger))
    assert [failure.client for failure in ledger.failures] == [3]
    assert len(answers) == CLIENTS - 1


def test_the_bound_can_be_set_and_taken_away() -> None:
    bench = crowd(with_liars("fedavg", {1: "huge"}))
    experiment = bench.experiment
    for bound, failures in ((1e6, [1]), (float("inf"), []), (1e-9, [*range(CLIENTS)])):
        engine = make_engine("serial")
        engine.open(experiment.site, experiment.desk, Memory(), Clock())
        server = Server(experiment.recipe, engine, Guard(bound))
        _, ledger = server.play(first_state(bench.method, bench.context()), bench.clients(), bench.context())
        assert sorted(failure.client for failure in ledger.failures) == failures
