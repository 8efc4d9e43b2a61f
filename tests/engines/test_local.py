"""Worker processes: the same bits as one client after the other, whatever happens to a worker."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from processes import alive
from torch import nn
from toys import (
    WIDE,
    Remembering,
    break_down,
    clients,
    decline,
    die,
    doubled,
    jobs,
    label,
    make_site,
    played,
    same,
    straggling,
    train_but_one_dies_once,
    train_but_two_die_once,
)

from potluck.core.client import train
from potluck.core.method import Method
from potluck.core.types import Client, Job, Tensors
from potluck.engines.local import Local
from potluck.engines.serial import Serial
from potluck.methods.heterofl import HeteroFL


def pids(engine: Local) -> list[int]:
    return [worker.process.pid for worker in engine.workers]


def opened(engine: Local, method: Method) -> Local:
    engine.personal = {}
    engine.open(make_site(method))
    return engine


@pytest.mark.parametrize("method", [Remembering(), HeteroFL(), HeteroFL(static_norm=False)])
def test_two_workers_give_the_bits_of_one_client_after_the_other(local: Local, method: Method) -> None:
    state, personal = played(Serial(), make_site(method))
    ours, kept = played(local, make_site(method))
    assert same(ours, state)
    assert set(kept) == set(personal)
    assert all(same(kept[id], personal[id]) for id in personal)


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_same_bits(workers: int) -> None:
    state, personal = played(Serial(), make_site(Remembering()))
    engine = Local(workers)
    try:
        ours, kept = played(engine, make_site(Remembering()))
        started = pids(engine)
        assert len(started) == workers
        assert all(alive(pid) for pid in started)
    finally:
        engine.close()
    assert same(ours, state)
    assert all(same(kept[id], personal[id]) for id in personal)
    assert not any(alive(pid) for pid in started)


def test_updates_come_in_the_order_of_the_jobs_though_the_first_straggles(local: Local) -> None:
    engine = opened(local, Remembering())
    updates = list(engine.map(straggling, jobs(make_site(Remembering()), clients())))
    assert [update.client.id for update in updates] == list(range(7))
    assert [int(update.payload["id"]) for update in updates] == list(range(7))
    assert updates[0].seconds >= 1.0


def test_jobs_are_drawn_when_there_is_room_for_them(local: Local) -> None:
    engine, drawn = opened(local, Remembering()), []

    def many(count: int) -> Iterator[Job]:
        for id in range(count):
            drawn.append(id)
            yield Job(Client(id, WIDE, 20, (0,)), 0, {})

    updates = engine.map(straggling, many(60))
    assert drawn == []
    next(updates)
    behind = len(drawn)
    assert [update.client.id for update in updates] == list(range(1, 60))
    assert behind < 40  # one slow client must not make all the others' updates pile up


def test_large_and_growing_tensors_pass_both_ways(local: Local) -> None:
    engine = opened(local, Remembering())
    sent = [torch.arange(float(10 ** (1 + id % 6))) for id in range(12)]
    given = (Job(Client(id, WIDE, 20, (0,)), 0, {"data": data}) for id, data in enumerate(sent))
    for update, data in zip(engine.map(doubled, given), sent, strict=True):
        assert torch.equal(update.payload["twice"], 2 * data)
        assert torch.equal(engine.personal[update.client.id]["kept"], data + 1)


def test_a_client_that_cannot_take_part_says_why(local: Local) -> None:
    engine = opened(local, Remembering())
    updates = list(engine.map(decline, jobs(make_site(Remembering()), clients())))
    assert [update.failure for update in updates] == ["", "flat battery"] + [""] * 5
    assert 1 not in engine.personal


def test_a_network_and_a_method_that_cannot_be_imported_work(local: Local) -> None:
    class Net(nn.Sequential):
        def __init__(self, width: float) -> None:
            super().__init__(nn.Linear(200, round(6 * width)), nn.ReLU(), nn.Linear(round(6 * width), 3))

    class Own(Method):
        def collect(self, net: nn.Module, job: Job, ctx: object) -> tuple[Tensors, Tensors]:
            sent, _ = super().collect(net, job, ctx)  # type: ignore[arg-type]
            return sent, {"own": sent["0.bias"]}

    for model in (Net, lambda width: Net(width)):
        ours, _ = played(local, make_site(Own(), model))
        expected, _ = played(Serial(), make_site(Own(), model))
        assert same(ours, expected)


def test_an_engine_opened_again_forgets_the_site_before(local: Local) -> None:
    expected, _ = played(Serial(), make_site(HeteroFL()))
    played(local, make_site(Remembering()))
    ours, _ = played(local, make_site(HeteroFL()))
    assert same(ours, expected)


def test_a_worker_that_is_killed_in_the_middle_of_a_job_changes_nothing(local: Local, tmp_path: Path) -> None:
    method = Remembering(str(tmp_path))
    site = make_site(method)
    engine, serial = opened(local, method), Serial()
    serial.open(site)
    before = pids(engine)
    updates = list(engine.map(train_but_one_dies_once, jobs(site, clients())))
    expected = list(serial.map(train, jobs(site, clients())))
    assert [path.name for path in tmp_path.iterdir()] == ["2-0"]
    assert [update.client.id for update in updates] == list(range(7))
    assert all(same(update.payload, other.payload) for update, other in zip(updates, expected, strict=True))
    assert all(same(engine.personal[id], serial.personal[id]) for id in range(7))
    after = pids(engine)
    assert len(after) == 2
    assert set(after) != set(before)
    assert not any(alive(pid) for pid in set(before) - set(after))


def test_a_worker_killed_while_idle_is_replaced(local: Local) -> None:
    engine = opened(local, Remembering())
    list(engine.map(label, jobs(make_site(Remembering()), clients())))
    victim = engine.workers[0].process
    victim.kill()
    victim.wait()
    updates = list(engine.map(label, jobs(make_site(Remembering()), clients())))
    assert [int(update.payload["id"]) for update in updates] == list(range(7))
    assert {id: int(kept["asked"]) for id, kept in engine.personal.items()} == dict.fromkeys(range(7), 2)


def test_a_worker_that_dies_with_nothing_to_do_is_replaced_while_others_work(local: Local) -> None:
    engine = opened(local, Remembering())
    updates = engine.map(straggling, jobs(make_site(Remembering()), clients()[:1]))  # a job for one of two workers
    victims = [worker.process for worker in engine.workers]

    def kill_the_idle() -> None:
        idle = next(worker for worker in engine.workers if not worker.assigned)
        idle.process.kill()

    timer = threading.Timer(0.3, kill_the_idle)
    timer.start()
    assert [int(update.payload["id"]) for update in updates] == [0]
    timer.join()
    list(engine.map(label, jobs(make_site(Remembering()), clients())))
    assert sum(process.poll() is None for process in victims) == 1
    assert all(alive(pid) for pid in pids(engine))


def test_a_job_that_waited_behind_one_that_died_has_not_been_tried(lone: Local, tmp_path: Path) -> None:
    method = Remembering(str(tmp_path))
    engine = opened(lone, method)
    updates = list(engine.map(train_but_two_die_once, jobs(make_site(method), clients())))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2-0", "3-0"]
    assert [update.client.id for update in updates] == list(range(7))


def test_a_job_that_kills_its_worker_twice_is_named(lone: Local) -> None:
    opened(lone, Remembering())
    with pytest.raises(RuntimeError, match=r"died twice \(exit code -9\) on client 1 of level 'narrow'.*memory"):
        list(lone.map(die, jobs(make_site(Remembering()), clients())))
    engine = opened(lone, Remembering())
    updates = list(engine.map(label, jobs(make_site(Remembering()), clients())))
    assert [update.client.id for update in updates] == list(range(7))


def test_a_bug_in_a_users_code_surfaces_with_the_client_and_the_place(lone: Local) -> None:
    site = make_site(Remembering())
    opened(lone, Remembering())
    with pytest.raises(RuntimeError) as caught:
        list(lone.map(break_down, jobs(site, clients())))
    message = str(caught.value)
    assert message.startswith("client 1 of level 'narrow' broke down:\nTraceback")
    assert "ValueError: the weights are upside down" in message
    assert "toys.py" in message
    assert "in break_down" in message
    assert all(alive(pid) for pid in pids(lone))
    updates = list(lone.map(label, jobs(site, clients())))  # the engine goes on
    assert [int(update.payload["id"]) for update in updates] == list(range(7))


def test_a_map_that_broke_down_does_not_break_the_next(lone: Local) -> None:
    """Its worker had more jobs by then, and they break down like the first."""
    site = make_site(Remembering())
    opened(lone, Remembering())
    with pytest.raises(RuntimeError, match="client 1 of level 'narrow' broke down"):
        list(lone.map(break_down, jobs(site, clients()[1:2] * 4)))
    updates = list(lone.map(label, jobs(site, clients())))
    assert [int(update.payload["id"]) for update in updates] == list(range(7))


def test_a_map_given_up_early_does_not_poison_the_next(lone: Local) -> None:
    site, serial = make_site(Remembering()), Serial()
    opened(lone, Remembering())
    serial.open(site)
    found = []
    for engine in (lone, serial):
        abandoned = engine.map(train, jobs(site, clients()))
        next(abandoned)
        abandoned.close()  # type: ignore[attr-defined]
        updates = list(engine.map(train, jobs(site, clients()[::-1], round=1)))
        found.append({update.client.id: update.payload for update in updates})
    assert list(found[0]) == list(found[1]) == [6, 5, 4, 3, 2, 1, 0]
    assert all(same(found[0][id], found[1][id]) for id in found[0])


def test_what_a_given_up_job_would_have_kept_is_not_kept(lone: Local) -> None:
    site = make_site(Remembering())
    opened(lone, Remembering())
    abandoned = lone.map(label, jobs(site, clients()))
    next(abandoned)
    abandoned.close()  # type: ignore[attr-defined]
    list(lone.map(label, jobs(site, clients()[3:])))
    assert {id: int(kept["asked"]) for id, kept in lone.personal.items()} == {0: 1, 3: 1, 4: 1, 5: 1, 6: 1}


def handles() -> int:
    """How many files this process has open."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (handles come and go while their paths are made)


def test_closing_gives_back_every_handle() -> None:
    before = handles()
    engine = opened(Local(1), Remembering())
    started = pids(engine)
    engine.close()
    engine.close()  # once more does no harm
    assert not any(alive(pid) for pid in started)
    del engine
    assert handles() == before
