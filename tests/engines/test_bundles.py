"""Clients trained at once or in another layout: the same bits from every engine, whatever happens to a worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from crew import crew
from processes import alive
from torch import nn
from toys import NARROW, WIDE, opened, same

from potluck.core.client import Site
from potluck.core.data import Arrays, Holdings, Pool
from potluck.core.engine import Engine
from potluck.core.errors import ConfigError, UpdateError
from potluck.core.method import Method
from potluck.core.networks import ByWidth
from potluck.core.recipe import Recipe
from potluck.core.rows import Row
from potluck.core.server import Server, bundles, first_state
from potluck.core.tensors import copied, state_of
from potluck.core.types import Client, Context, Job, Task, Tensors, Train, Update
from potluck.core.ways.way import Way
from potluck.engines.local import Local
from potluck.engines.process import Assigned
from potluck.engines.serial import Serial
from potluck.methods.heterofl import HeteroFL

CLIENTS, EACH = 11, 12
WAYS = {
    "stacked by 2": {"wide": "stacked-2", "narrow": "stacked-2"},
    "stacked by 8": {"wide": "stacked-8", "narrow": "stacked-8"},
    "channels last": {"wide": "channels-last", "narrow": "channels-last"},
    "swift": {"wide": "swift", "narrow": "swift"},
    "mixed": {"wide": "channels-last", "narrow": "stacked-3"},
}
ONE_BY_ONE = ("channels last", "swift")  # ways in which dropout may be part of a network


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    """Serial and the parent on one thread: the cores are the workers'."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def conv(width: float) -> nn.Module:
    channels = round(8 * width)
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.Flatten(),
        nn.Linear(9 * channels, 5),
    )


def dropping(width: float) -> nn.Module:
    return nn.Sequential(*conv(width)[:4], nn.Dropout(0.4), *conv(width)[4:])  # type: ignore[index]


@dataclass(frozen=True)
class Keeping(HeteroFL):
    """Every client keeps a bias of its own; in `folder`, client 4's process dies when it has all but answered, once."""

    folder: str = ""

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        net = super().localize(job, ctx, personal)
        if personal:
            net.get_parameter("0.bias").data.copy_(personal["own"])
        return net

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        if self.folder and job.client.id == 4:
            mark = Path(self.folder) / f"died-{job.round}"
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        sent, _ = super().collect(net, job, ctx)
        return sent, {"own": state_of(net)["0.bias"] + 0.1}


def site_of(ways: dict[str, str], method: Method, model: Callable[[float], nn.Module] = conv) -> Site:
    rng = torch.Generator().manual_seed(0)
    count = CLIENTS * EACH
    examples = Arrays(torch.randn(count, 3, 6, 6, generator=rng), torch.arange(count) % 5)
    holdings = Holdings.of_lists(list(torch.split(torch.arange(count), EACH)))
    example = (torch.zeros(1, 3, 6, 6), torch.zeros(1, dtype=torch.long))
    names = [name for name, _ in model(1.0).named_parameters()]
    heads = dict.fromkeys((WIDE.name, NARROW.name), tuple(names[-2:]))
    settings = Train(lr=0.05, epochs=1, batch_size=5)
    task = Task(ByWidth(model), (WIDE, NARROW), 5, heads, example, settings, rounds=2)
    return Site(Recipe(method, task, 11, ways), Pool(examples, holdings))


def cohort() -> list[Client]:
    """Seven of one level, then four of the other, with labels of their own."""
    levels = [WIDE] * 7 + [NARROW] * 4
    return [Client(id, level, EACH, tuple(range(id % 3, 5)), turn=id) for id, level in enumerate(levels)]


def stacks_of(site: Site) -> dict[str, int]:
    return {level: Way.called(way).stack for level, way in site.recipe.ways.items()}


def played(engine: Engine, site: Site, rounds: int = 2) -> tuple[Tensors, dict[int, Tensors]]:
    store = opened(engine, site)
    server = Server(site.recipe, engine, macs={"wide": 1, "narrow": 1}, stacks=stacks_of(site))
    state = first_state(site.method, site.context(0))
    for round in range(rounds):
        state, ledger = server.play(state, cohort(), site.context(round))
        assert ledger.clients == CLIENTS
        assert not ledger.failures
    return state, store.kept


def jobs_of(site: Site, work: str = "train") -> Iterator[list[Job]]:
    """The jobs of a first round, in the bundles that the site's ways ask for."""
    ctx = site.context(0)
    server = Server(site.recipe, Serial())
    return server.jobs(work, first_state(site.method, ctx), bundles(cohort(), stacks_of(site)), ctx)


def site_in(ways: str) -> Site:
    return site_of(WAYS[ways], Keeping(), dropping if ways in ONE_BY_ONE else conv)


@pytest.fixture(scope="module")
def expected() -> dict[str, tuple[Tensors, dict[int, Tensors]]]:
    """The state and what stayed on the clients, one client or bundle after the other."""
    return {ways: played(Serial(), site_in(ways)) for ways in WAYS}


@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.whole), 2, pytest.param(3, marks=pytest.mark.whole)]
)
def test_every_engine_gives_the_same_bits(
    local: Local, workers: int, expected: dict[str, tuple[Tensors, dict[int, Tensors]]]
) -> None:
    with crew(local, workers) as engine:
        for ways, (state, personal) in expected.items():
            ours, kept = played(engine, site_in(ways))
            assert len(engine.workers) == workers
            assert same(ours, state)
            assert set(kept) == set(personal) == set(range(CLIENTS))
            assert all(same(kept[id], personal[id]) for id in personal)


@pytest.mark.parametrize("ways", WAYS)
def test_every_way_ends_where_the_plain_one_does(
    ways: str, expected: dict[str, tuple[Tensors, dict[int, Tensors]]]
) -> None:
    state, _ = expected[ways]
    site = site_in(ways)
    plain, _ = played(Serial(), replace(site, recipe=replace(site.recipe, ways={})))
    assert all(torch.allclose(state[name], plain[name], atol=1e-5) for name in plain)
    assert ways == "swift" or not same(state, plain)  # it was another way


def test_bundles_reach_the_workers_as_such(local: Local) -> None:
    """Clients at once share their time, which clients one after the other never do."""
    site = site_of(WAYS["stacked by 8"], Keeping())
    for engine in (local, Serial()):
        opened(engine, site)
        seconds = [update.seconds for update in engine.map(jobs_of(site))]
        assert len(set(seconds[:7])) == 1
        assert len(set(seconds[7:])) == 1


@pytest.mark.whole
def test_a_worker_that_dies_in_the_middle_of_a_bundle_changes_nothing(local: Local, tmp_path: Path) -> None:
    serial, site = Serial(), site_of(WAYS["stacked by 8"], Keeping())
    personal = opened(serial, site).kept
    expected = list(serial.map(jobs_of(site)))
    dying = site_of(WAYS["stacked by 8"], Keeping(folder=str(tmp_path)))
    kept = opened(local, dying).kept
    before = {worker.process.pid for worker in local.workers}
    updates = list(local.map(jobs_of(dying)))
    after = {worker.process.pid for worker in local.workers}
    assert [path.name for path in tmp_path.iterdir()] == ["died-0"]
    (dead,) = before - after
    assert not alive(dead)
    assert [update.client.id for update in updates] == list(range(CLIENTS))
    assert all(same(update.payload, other.payload) for update, other in zip(updates, expected, strict=True))
    assert all(same(kept[id], personal[id]) for id in range(CLIENTS))


def test_updates_of_a_bundle_are_rows_of_one_stack(local: Local) -> None:
    site = site_of(WAYS["mixed"], HeteroFL())
    for engine in (local, Serial()):
        opened(engine, site)
        payloads = [update.payload for update in engine.map(jobs_of(site))]
        assert [isinstance(payload, Row) for payload in payloads] == [False] * 7 + [True] * 4
        first, second = payloads[7:9], payloads[9:]  # four clients by three at most: two bundles of two
        assert len({id(row.stack) for row in first}) == len({id(row.stack) for row in second}) == 1  # type: ignore[attr-defined]
        assert first[0].stack is not second[0].stack  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Uneven(HeteroFL):
    """Client 2 cannot answer; client 3 answers with something else."""

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        if job.client.id == 2:
            raise UpdateError("it went away")
        sent, _ = super().collect(net, job, ctx)
        return ({"odd": torch.ones(3)} if job.client.id == 3 else sent), {"own": torch.full((2,), job.client.id)}


def test_who_fails_or_differs_in_a_bundle_is_left_out_and_the_others_keep_their_bits(local: Local) -> None:
    site, found = site_of(WAYS["stacked by 8"], Uneven()), []
    for engine in (Serial(), local):
        store = opened(engine, site)
        server = Server(site.recipe, engine, stacks=stacks_of(site))
        state, ledger = server.play(first_state(site.method, site.context(0)), cohort(), site.context(0))
        assert [failure.client for failure in ledger.failures] == [2, 3]
        assert sorted(store.kept) == [id for id in range(CLIENTS) if id != 2]
        assert store.kept[10]["own"].tolist() == [10, 10]
        found.append(state)
    assert same(*found)


def test_a_bundle_is_named_by_its_first_client() -> None:
    jobs = [job for bundle in jobs_of(site_of({}, HeteroFL())) for job in bundle]
    assert Assigned(0, jobs[:1]).described() == "client 0 of level 'wide' in round 1"
    assert Assigned(0, jobs[6:]).described() == "client 6 of level 'wide' in round 1 and 4 more"


def test_updates_of_a_bundle_come_one_by_one_in_order(local: Local) -> None:
    site = site_of(WAYS["stacked by 2"], Keeping())
    store = opened(local, site)
    seen: list[int] = []
    for update in local.map(jobs_of(site)):
        assert isinstance(update, Update)
        seen.append(update.client.id)
        assert set(seen) == set(store.kept)  # what stays is there with its update, no sooner
    assert seen == list(range(CLIENTS))


def refusal(engine: Engine, site: Site) -> tuple[type[Exception], str]:
    """The error without its traceback, which would keep updates and their slots for the tests to come."""
    opened(engine, site)
    try:
        list(engine.map(jobs_of(site)))
    except Exception as error:
        return type(error), str(error)
    raise AssertionError("it was not refused")


def test_dropout_in_a_stack_is_refused_in_words() -> None:
    kind, message = refusal(Serial(), site_of(WAYS["stacked by 2"], HeteroFL(), dropping))
    assert kind is ConfigError
    assert "'4' drops units at random" in message


def test_it_is_refused_by_workers_in_the_same_words(local: Local) -> None:
    site = site_of(WAYS["stacked by 8"], HeteroFL(), dropping)
    with crew(local, 1) as engine:
        found = refusal(engine, site)
        while any(worker.assigned for worker in engine.workers):  # answers that are still to come
            with suppress(RuntimeError, ConfigError):
                list(engine.receive())
    assert found == refusal(Serial(), site)


def deep(width: float) -> nn.Module:
    channels = round(16 * width)
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.Flatten(),
        nn.Linear(36 * channels, 5),
    )


def test_statistics_do_not_depend_on_who_has_trained() -> None:
    """Of several workers some have trained a client of the level that they measure, others have not."""
    found = []
    for trains in (False, True):
        engine, site = Serial(), site_of(WAYS["channels last"], HeteroFL(), deep)
        opened(engine, site)
        assert not trains or list(engine.map(jobs_of(site)))
        found.append([copied(update.payload) for update in engine.map(jobs_of(site, "calibrate"))])
    assert all(found[0])
    assert all(same(fresh, after) for fresh, after in zip(*found, strict=True))
