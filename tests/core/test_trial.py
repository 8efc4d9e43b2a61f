"""Trying ways to train: only those count that compute what the plain way does, and only for a short time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_sites import CLASSES, NARROW, WIDE, batch_normed, client_of, conv, job_for, mlp, same, site_of
from torch import nn

from potluck.core.client import Site
from potluck.core.errors import UpdateError
from potluck.core.tensors import copied
from potluck.core.types import Client, Job, Level, Train
from potluck.core.ways import trial
from potluck.core.ways.counted import Load
from potluck.core.ways.trial import BATCHES, SECONDS, SHARE, TURN, TURNS, Plan, candidates, try_ways
from potluck.core.ways.way import Way

SMALL = Load(examples=5, macs=1000, together=3)
LONG = Plan(SMALL, batches=1e9)


def tried(site: Site, level: Level = WIDE, plan: Plan = LONG) -> dict[str, float]:
    found, kept = try_ways({level.name: plan}, site, job_for(site, client_of(0, level)), {})
    assert kept == {}
    assert all(seconds.dtype == torch.float64 and seconds.shape == () for seconds in found.values())
    return {name: float(seconds) for name, seconds in found.items()}


# ---- which ----


@pytest.mark.parametrize(
    ("net", "first", "names"),
    [
        (mlp(1.0), "plain", ["plain", "swift", "stacked-3"]),
        (mlp(1.0), "stacked-3", ["plain", "stacked-3", "swift"]),
        (conv(1.0), "plain", ["plain", "channels-last", "swift", "stacked-3"]),
        (conv(1.0), "swift", ["plain", "swift", "channels-last", "stacked-3"]),
        (nn.Sequential(nn.Conv1d(1, 1, 1)), "plain", ["plain", "swift", "stacked-3"]),
    ],
)
def test_candidates_are_those_a_network_can_gain_from(net: nn.Module, first: str, names: list[str]) -> None:
    assert candidates(net, Plan(SMALL, 1, first)) == names


@pytest.mark.parametrize(("together", "stacks"), [(1, []), (5, ["stacked-5"]), (20, ["stacked-8", "stacked-20"])])
def test_no_stack_is_tried_that_no_round_has(together: int, stacks: list[str]) -> None:
    assert candidates(mlp(1.0), Plan(Load(5, 1000, together), 1))[2:] == stacks


# ---- how long ----


class Watch:
    """A clock that moves only when a way is run: a fixed time for each batch."""

    def __init__(self, seconds: Mapping[str, float], ready: float = 0.0) -> None:
        self.now, self.seconds, self.ready = 100.0, seconds, ready
        self.ran: list[tuple[str, int]] = []

    def perf_counter(self) -> float:
        return self.now

    def trial(self, way: Way, site: Site, job: Job, personal: object) -> Callable[[int], None]:
        name = next(name for name in self.seconds if Way.called(name) == way)

        def run(batches: int) -> None:
            self.now += self.seconds[name] * batches * way.stack
            if name not in [known for known, _ in self.ran]:
                self.now += self.ready
            self.ran.append((name, batches))

        return run

    def turns(self, name: str) -> list[int]:
        return [batches for ran, batches in self.ran if ran == name]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Watch]:
    def make(ready: float = 0.0, **seconds: float) -> Watch:
        found = Watch({name.replace("_", "-"): each for name, each in seconds.items()}, ready)
        monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=found.perf_counter))
        monkeypatch.setattr(trial, "trial", found.trial)
        monkeypatch.setattr(trial, "agrees", lambda *of: True)
        return found

    return make


CALM = {"plain": 0.01, "swift": 0.01, "channels_last": 0.01, "stacked_3": 0.01}


def test_seconds_are_those_of_one_client(watch: Callable[..., Watch]) -> None:
    watch(**CALM)
    assert tried(site_of(conv)) == pytest.approx(dict.fromkeys(("plain", "channels-last", "swift", "stacked-3"), 0.05))


def test_making_ready_does_not_count(watch: Callable[..., Watch]) -> None:
    watch(**CALM, ready=0.1)
    assert list(tried(site_of(conv)).values()) == pytest.approx([0.05] * 4)


def test_a_turn_is_a_few_batches(watch: Callable[..., Watch]) -> None:
    watched = watch(**CALM)
    tried(site_of(conv))
    assert watched.turns("swift") == [1] + [BATCHES] * TURNS
    watched = watch(**dict.fromkeys(CALM, TURN / 3))
    tried(site_of(mlp))
    assert set(watched.turns("swift")) == {1, 3}


@pytest.mark.parametrize(("slower", "turns"), [(2.1, 1), (1.5, 2), (1.1, TURNS)])
def test_a_way_that_is_behind_is_dropped(watch: Callable[..., Watch], slower: float, turns: int) -> None:
    watched = watch(**{**CALM, "swift": 0.01 * slower})
    assert tried(site_of(conv))["swift"] == pytest.approx(0.05 * slower)
    assert len(watched.turns("swift")) == 1 + turns
    assert len(watched.turns("channels-last")) == 1 + TURNS


def test_the_last_one_in_the_race_stops(watch: Callable[..., Watch]) -> None:
    watched = watch(**{**dict.fromkeys(CALM, 0.03), "channels_last": 0.01})
    tried(site_of(conv))
    assert len(watched.turns("channels-last")) == 2


@pytest.mark.parametrize("batch", [0.001, 0.03, 0.19, 0.21, 0.9, 1.3, 2.0])
@pytest.mark.parametrize("share", [1.0, 0.3, 0.1])
def test_the_time_is_kept(watch: Callable[..., Watch], batch: float, share: float) -> None:
    """Whatever a batch takes: a few seconds, and the share of a level's training that is allowed."""
    watched = watch(**{**dict.fromkeys(CALM, batch), "stacked_3": batch / 2})
    batches = share * SECONDS / SHARE / batch
    tried(site_of(conv), plan=Plan(SMALL, batches))
    assert watched.now - 100 <= max(share * SECONDS, 2 * batch) + 1e-6


def test_where_a_batch_takes_long_the_first_is_the_only_one(watch: Callable[..., Watch]) -> None:
    watched = watch(plain=2.0, channels_last=1.5, swift=1.0, stacked_3=1.0)
    assert tried(site_of(conv), plan=Plan(SMALL, 1e9, "channels-last")) == {"plain": 2.0, "channels-last": 1.5}
    assert watched.ran == [("plain", 1), ("channels-last", 1)]


@pytest.mark.parametrize(("batch", "asked"), [(1.5, 0), (1.2, 1)])
def test_a_way_is_compared_only_if_there_is_time_for_that_and_a_batch(
    watch: Callable[..., Watch], monkeypatch: pytest.MonkeyPatch, batch: float, asked: int
) -> None:
    """After the plain batch, two batches to compare and one of its own must fit into 5 seconds: 4·1.2, not 4·1.5."""
    watch(**dict.fromkeys(CALM, batch))
    compared = []
    monkeypatch.setattr(trial, "agrees", lambda *of: compared.append(of) or True)
    assert len(tried(site_of(conv), plan=Plan(SMALL, 1e9))) == 1 + asked
    assert len(compared) == asked


def test_where_there_is_no_time_the_plain_way_is_alone(watch: Callable[..., Watch]) -> None:
    watched = watch(**CALM)
    assert tried(site_of(conv), plan=Plan(SMALL, 100)) in ({}, {"plain": pytest.approx(0.05)})
    assert set(watched.ran) == {("plain", 1)}


# ---- what is tried ----


@pytest.fixture
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """One short turn each, however long it takes."""
    monkeypatch.setattr(trial, "TURNS", 1)
    monkeypatch.setattr(trial, "SECONDS", 1e9)


@pytest.mark.usefixtures("haste")
def test_real_ways_are_timed() -> None:
    found = tried(site_of(batch_normed))
    assert list(found) == ["plain", "channels-last", "swift", "stacked-3"]
    assert all(seconds > 0 for seconds in found.values())


@pytest.mark.usefixtures("haste")
@pytest.mark.parametrize("level", [WIDE, NARROW])
def test_a_way_that_computes_something_else_is_left_out(level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    real = trial.agrees
    monkeypatch.setattr(trial, "agrees", lambda way, *of: not way.channels_last and real(way, *of))
    assert list(tried(site_of(conv), level)) == ["plain", "swift", "stacked-3"]


@pytest.mark.usefixtures("haste")
def test_what_draws_random_numbers_is_not_stacked() -> None:
    dropping = site_of(lambda width: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(108, CLASSES)))
    assert list(tried(dropping)) == ["plain", "swift"]


def test_a_plain_way_that_does_not_work_is_the_clients_failure() -> None:
    site = site_of(conv)
    nobody = Job(Client(0, WIDE, 0, ()), 0, job_for(site, client_of(0)).payload)
    with pytest.raises(UpdateError, match="holds no examples"):
        try_ways({"wide": LONG}, site, nobody, {})


def test_a_bug_in_the_plain_way_surfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ValueError("the weights are upside down")

    monkeypatch.setattr(trial, "train_in", fail)
    with pytest.raises(ValueError, match="upside down"):
        tried(site_of(conv))


@pytest.mark.usefixtures("haste")
def test_trying_changes_nothing_that_was_sent() -> None:
    site = site_of(batch_normed, settings=Train(lr=0.05, epochs=50, batch_size=5))
    job = job_for(site, client_of(0))
    before = copied(job.payload)
    torch.manual_seed(3)
    state: Any = torch.get_rng_state()
    try_ways({"wide": LONG}, site, job, {})
    assert same(job.payload, before)
    assert torch.equal(torch.get_rng_state(), state)
