"""Trying ways to train: only those count that give what the plain way gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_sites import BRISK, CLASSES, NARROW, WIDE, batch_normed, client_of, conv, job_for, mlp, normed, same, site_of
from torch import nn

from potluck import methods
from potluck.core.client import Site
from potluck.core.errors import ConfigError, UpdateError
from potluck.core.method import Method
from potluck.core.tensors import copied
from potluck.core.types import Job, Level, Tensors, Train
from potluck.core.ways import trial
from potluck.core.ways.trial import BATCHES, SECONDS, STACKED_SCALARS, TURNS, candidates, enough, try_ways
from potluck.core.ways.way import Way
from potluck.methods.fjord import FjORD

HASTE = 1  # turns are enough here


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "TURNS", HASTE)
    monkeypatch.setattr(trial, "STACKS", (2, 3))


def tried(site: Site, level: Level = WIDE) -> list[str]:
    found, kept = try_ways(site, job_for(site, client_of(0, level)), {})
    assert kept == {}
    assert all(seconds.dtype == torch.float64 and seconds.shape == () and seconds > 0 for seconds in found.values())
    return list(found)


def test_candidates_are_those_a_network_can_gain_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "STACKS", (8, 32))
    assert candidates(mlp(1.0)) == ["plain", "swift", "stacked-8", "stacked-32"]
    assert candidates(conv(1.0)) == ["plain", "swift", "channels-last", "stacked-8", "stacked-32"]
    assert candidates(nn.Sequential(nn.Conv1d(1, 1, 1))) == ["plain", "swift", "stacked-8", "stacked-32"]


@pytest.mark.parametrize(
    ("scalars", "stacks"),
    [
        (STACKED_SCALARS // 32, ["stacked-8", "stacked-32"]),
        (STACKED_SCALARS // 32 + 1, ["stacked-8"]),
        (STACKED_SCALARS // 8, ["stacked-8"]),
        (STACKED_SCALARS // 8 + 1, []),
    ],
)
def test_large_networks_are_not_stacked(scalars: int, stacks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "STACKS", (8, 32))
    net = nn.ParameterList([torch.empty(scalars, device="meta")])
    assert candidates(net) == ["plain", "swift", *stacks]


@pytest.mark.parametrize(
    ("times", "done"),
    [
        ([], False),
        ([10 * SECONDS], False),  # one turn may have been disturbed
        ([SECONDS / 2, SECONDS / 2], True),
        ([SECONDS / 3, SECONDS / 3], False),
        ([SECONDS / 3] * 4, True),
        ([0.0] * 8, False),
        ([0.0] * 9, True),
    ],
)
def test_enough_is_some_time_in_two_turns_or_many_turns(
    times: list[float], done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "TURNS", TURNS)
    assert enough(times) is done


EVERYTHING = ["plain", "swift", "channels-last", "stacked-2", "stacked-3"]


@pytest.mark.parametrize("level", [WIDE, NARROW])
@pytest.mark.parametrize("name", ["fedavg", "fedrolex", "heterofl", "splitmix"])
def test_all_ways_agree_on_a_network_that_suits_them(name: str, level: Level) -> None:
    site = site_of(batch_normed, methods.find(name)())
    if site.method.admits(level, site.context(0)):
        assert tried(site, level) == EVERYTHING


@pytest.mark.parametrize(("name", "level"), [("fedhm", NARROW), ("flanc", WIDE), ("flanc", NARROW)])
def test_methods_whose_loss_reads_the_weights_can_be_tried(name: str, level: Level) -> None:
    site = site_of(normed(nn.BatchNorm2d, full=16), methods.find(name)())
    assert tried(site, level)[:3] == EVERYTHING[:3]


def test_what_draws_random_numbers_is_not_stacked() -> None:
    assert tried(site_of(batch_normed, FjORD())) == EVERYTHING[:3]
    dropping = site_of(lambda width: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(108, CLASSES)))
    assert tried(dropping) == ["plain", "swift"]


def test_a_layout_that_dropout_would_notice_is_still_right() -> None:
    """Swift drops the units of the plain layout."""
    site = site_of(
        lambda width: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, CLASSES))
    )
    assert tried(site) == ["plain", "swift", "channels-last"]


def spoiled(real: Callable[..., Any], chosen: Callable[[Way], bool], by: float) -> Callable[..., Any]:
    """train_in, but with a result that is off in some ways: by so much of what training changed."""

    def train_in(way: Way, site: Site, job: Job, personal: Tensors, most: int | None = None) -> tuple[Tensors, Tensors]:
        sent, own = real(way, site, job, personal, most)
        if not chosen(way):
            return sent, own
        sent = copied(sent)
        return {name: value + by * (value - job.payload[name]) for name, value in sent.items()}, own

    return train_in


@pytest.mark.parametrize(("by", "left"), [(0.01, False), (0.0001, True)])
def test_a_way_that_ends_elsewhere_is_left_out(by: float, left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "train_in", spoiled(trial.train_in, lambda way: way.channels_last, by))
    assert ("channels-last" in tried(site_of(conv))) == left
    assert "swift" in tried(site_of(conv))


def test_ways_that_all_end_elsewhere_leave_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "train_in", spoiled(trial.train_in, lambda way: way == Way(), 0.01))
    assert tried(site_of(conv)) == ["plain"]


def test_training_that_diverges_leaves_the_plain_way() -> None:
    site = site_of(conv, settings=Train(lr=1e30, clip=0.0, epochs=2, batch_size=5))
    assert tried(site) == ["plain"]


@pytest.mark.parametrize("error", [RuntimeError, ConfigError, ValueError, UpdateError])
def test_a_way_that_does_not_work_is_left_out(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> Iterator[object]:
        raise error("not like this")
        yield

    monkeypatch.setattr(trial, "train_stacked", fail)
    assert tried(site_of(conv)) == EVERYTHING[:3]


def test_a_plain_way_that_does_not_work_is_the_clients_failure() -> None:
    site = site_of(conv)
    job = job_for(site, client_of(0))
    nobody = Job(client_of(0).__class__(0, WIDE, 0, ()), 0, job.payload)
    with pytest.raises(UpdateError, match="holds no examples"):
        try_ways(site, nobody, {})


def test_a_bug_in_the_plain_way_surfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ValueError("the weights are upside down")

    monkeypatch.setattr(trial, "train_in", fail)
    with pytest.raises(ValueError, match="upside down"):
        tried(site_of(conv))


def test_seconds_are_those_of_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock in which every look takes a second."""
    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=count().__next__))
    site = site_of(conv)
    found, _ = try_ways(site, job_for(site, client_of(0)), {})
    expected = {"plain": 1.0, "swift": 1.0, "channels-last": 1.0, "stacked-2": 1 / 2, "stacked-3": 1 / 3}
    assert {name: float(seconds) for name, seconds in found.items()} == pytest.approx(expected)


def test_the_median_turn_counts_and_all_ways_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "TURNS", 3)
    monkeypatch.setattr(trial, "STACKS", ())
    took = iter([1, 5, 100, 2, 3, 4])  # plain and swift by turns
    looks = [0.0]

    def perf_counter() -> float:
        looks.append(looks[-1] + (next(took) if len(looks) % 2 == 0 else 0))
        return looks[-1]

    monkeypatch.setattr(trial, "time", SimpleNamespace(perf_counter=perf_counter))
    monkeypatch.setattr(trial, "SECONDS", 1000)
    site = site_of(mlp)
    found, _ = try_ways(site, job_for(site, client_of(0)), {})
    assert {name: float(seconds) for name, seconds in found.items()} == {"plain": 3.0, "swift": 4.0}


def test_trials_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    class Counting(Method):
        def phases(self, job: Job, ctx: object, personal: Tensors) -> Sequence[Any]:
            (phase,) = super().phases(job, ctx, personal)  # type: ignore[arg-type]
            steps.append(0)
            return [type(phase)(counted)]

    def counted(net: nn.Module, batch: tuple[torch.Tensor, torch.Tensor], extra: Tensors) -> torch.Tensor:
        steps[-1] += 1
        return net(batch[0]).square().mean()

    site = site_of(mlp, Counting(), Train(lr=0.1, epochs=50, batch_size=5))
    monkeypatch.setattr(trial, "STACKS", ())
    tried(site)
    assert set(steps) == {BATCHES}


def test_trying_changes_nothing_that_was_sent() -> None:
    site = site_of(batch_normed)
    job = job_for(site, client_of(0))
    before = copied(job.payload)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    try_ways(site, job, {})
    assert same(job.payload, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_settings_are_the_clients_own() -> None:
    """What the trials above are of."""
    assert site_of(conv).task.train == BRISK
