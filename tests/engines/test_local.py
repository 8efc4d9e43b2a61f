"""Worker processes: the same bits as one client after the other, whatever happens to a worker."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from processes import alive
from torch import nn
from toys import (
    UNHEARD_OF,
    WIDE,
    Remembering,
    bundles,
    clients,
    done,
    jobs,
    make_site,
    opened,
    played,
    same,
)

from potluck.core.client import Site
from potluck.core.method import Method
from potluck.core.types import Client, Job, Tensors, Update
from potluck.engines.local import Local
from potluck.engines.serial import Serial
from potluck.methods.heterofl import HeteroFL


def pids(engine: Local) -> list[int]:
    return [worker.process.pid for worker in engine.workers]


def ids(updates: Iterable[Update]) -> list[int]:
    """Who answered, as each says of itself."""
    return [int(update.payload["id"]) for update in updates]


@pytest.mark.parametrize("method", [Remembering(), HeteroFL(), HeteroFL(static_norm=False)])
def test_two_workers_give_the_bits_of_one_client_after_the_other(local: Local, method: Method) -> None:
    state, personal = played(Serial(), make_site(method))
    ours, kept = played(local, make_site(method))
    assert same(ours, state)
    assert set(kept) == set(personal)
    assert all(same(kept[id], personal[id]) for id in personal)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.whole), 3])
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
    site = make_site(Remembering())
    opened(local, site)
    updates = done(local, "straggling", jobs(site, clients()))
    assert [update.client.id for update in updates] == list(range(7))
    assert ids(updates) == list(range(7))
    assert updates[0].seconds >= 1.0


def test_jobs_are_drawn_when_there_is_room_for_them(local: Local) -> None:
    drawn: list[int] = []
    opened(local, make_site(Remembering()))

    def many(count: int) -> Iterator[Job]:
        for id in range(count):
            drawn.append(id)
            yield Job(Client(id, WIDE, 20, (0,)), 0, {})

    updates = local.map(bundles("straggling", many(60)))
    assert drawn == []
    next(updates)
    behind = len(drawn)
    assert [update.client.id for update in updates] == list(range(1, 60))
    assert behind < 40  # one slow client must not make all the others' updates pile up


def test_large_and_growing_tensors_pass_both_ways(local: Local) -> None:
    store = opened(local, make_site(Remembering()))
    sent = [torch.arange(float(10 ** (1 + id % 6))) for id in range(12)]
    given = (Job(Client(id, WIDE, 20, (0,)), 0, {"data": data}) for id, data in enumerate(sent))
    for update, data in zip(local.map(bundles("doubled", given)), sent, strict=True):
        assert torch.equal(update.payload["twice"], 2 * data)
        assert torch.equal(store.kept[update.client.id]["kept"], data + 1)


def test_a_client_that_cannot_take_part_says_why(local: Local) -> None:
    site = make_site(Remembering())
    store = opened(local, site)
    updates = done(local, "decline", jobs(site, clients()))
    assert [update.failure for update in updates] == ["", "flat battery"] + [""] * 5
    assert 1 not in store.kept


def test_a_client_that_cannot_take_part_keeps_what_it_had(local: Local) -> None:
    site = make_site(Remembering())
    store = opened(local, site)
    for work in ("label", "decline"):
        done(local, work, jobs(site, clients()))
    assert {id: int(kept["asked"]) for id, kept in store.kept.items()} == {**dict.fromkeys(range(7), 2), 1: 1}


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
    serial = Serial()
    kept, expected_kept = opened(local, site).kept, opened(serial, site).kept
    before = pids(local)
    updates = done(local, "train_but_one_dies_once", jobs(site, clients()))
    expected = done(serial, "train", jobs(site, clients()))
    assert [path.name for path in tmp_path.iterdir()] == ["2-0"]
    assert [update.client.id for update in updates] == list(range(7))
    assert all(same(update.payload, other.payload) for update, other in zip(updates, expected, strict=True))
    assert all(same(kept[id], expected_kept[id]) for id in range(7))
    after = pids(local)
    assert len(after) == 2
    assert set(after) != set(before)
    assert not any(alive(pid) for pid in set(before) - set(after))


def test_a_worker_killed_while_idle_is_replaced(local: Local) -> None:
    site = make_site(Remembering())
    store = opened(local, site)
    done(local, "label", jobs(site, clients()))
    victim = local.workers[0].process
    victim.kill()
    victim.wait()
    assert ids(done(local, "label", jobs(site, clients()))) == list(range(7))
    assert {id: int(kept["asked"]) for id, kept in store.kept.items()} == dict.fromkeys(range(7), 2)


def test_a_worker_that_dies_with_nothing_to_do_is_replaced_while_others_work(local: Local) -> None:
    site = make_site(Remembering())
    opened(local, site)
    done(local, "label", jobs(site, clients()))  # both have begun
    updates = local.map(bundles("straggling", jobs(site, clients()[:1])))  # a job for one of two workers
    victims = [worker.process for worker in local.workers]

    def kill_the_idle() -> None:
        idle = next(worker for worker in local.workers if not worker.assigned)
        idle.process.kill()

    timer = threading.Timer(0.3, kill_the_idle)
    timer.start()
    assert ids(updates) == [0]
    timer.join()
    done(local, "label", jobs(site, clients()))
    assert sum(process.poll() is None for process in victims) == 1
    assert all(alive(pid) for pid in pids(local))


@pytest.mark.whole
def test_a_job_that_waited_behind_one_that_died_has_not_been_tried(lone: Local, tmp_path: Path) -> None:
    site = make_site(Remembering(str(tmp_path)))
    opened(lone, site)
    updates = done(lone, "train_but_two_die_once", jobs(site, clients()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2-0", "3-0"]
    assert [update.client.id for update in updates] == list(range(7))


@pytest.mark.whole
def test_a_job_that_kills_its_worker_twice_is_named(lone: Local) -> None:
    site = make_site(Remembering())
    opened(lone, site)
    named = r"died twice \(exit code -9\) on client 1 of level 'narrow' in round 1;.*memory"
    with pytest.raises(RuntimeError, match=named):
        done(lone, "die", jobs(site, clients()))
    opened(lone, site)
    assert ids(done(lone, "label", jobs(site, clients()))) == list(range(7))


def one_asks_too_much(site: Site) -> Iterator[list[Job]]:
    """Client 1 is asked for what no site can do."""
    for job in jobs(site, clients()):
        yield [replace(job, work=UNHEARD_OF if job.client.id == 1 else "label")]


def test_a_bug_in_potluck_surfaces_with_the_client_and_the_place(lone: Local) -> None:
    site = make_site(Remembering())
    opened(lone, site)
    with pytest.raises(RuntimeError) as caught:
        list(lone.map(one_asks_too_much(site)))
    message = str(caught.value)
    assert message.startswith("client 1 of level 'narrow' in round 1 broke down:\nTraceback")
    assert f"KeyError: '{UNHEARD_OF}'" in message
    assert "works.py" in message
    assert "in perform_one" in message
    assert all(alive(pid) for pid in pids(lone))
    assert ids(done(lone, "label", jobs(site, clients()))) == list(range(7))  # the engine goes on


def test_a_map_that_broke_down_does_not_break_the_next(lone: Local) -> None:
    """Its worker had more jobs by then, and they break down like the first."""
    site = make_site(Remembering())
    opened(lone, site)
    with pytest.raises(RuntimeError, match="client 1 of level 'narrow' in round 1 broke down"):
        done(lone, UNHEARD_OF, jobs(site, clients()[1:2] * 4))
    assert ids(done(lone, "label", jobs(site, clients()))) == list(range(7))


def test_a_map_given_up_early_does_not_poison_the_next(lone: Local) -> None:
    site = make_site(Remembering())
    found = []
    for engine in (lone, Serial()):
        opened(engine, site)
        abandoned = engine.map(bundles("train", jobs(site, clients())))
        next(abandoned)
        abandoned.close()  # type: ignore[attr-defined]
        updates = done(engine, "train", jobs(site, clients()[::-1], round=1))
        found.append({update.client.id: update.payload for update in updates})
    assert list(found[0]) == list(found[1]) == [6, 5, 4, 3, 2, 1, 0]
    assert all(same(found[0][id], found[1][id]) for id in found[0])


def test_what_a_given_up_job_would_have_kept_is_not_kept(lone: Local) -> None:
    site = make_site(Remembering())
    store = opened(lone, site)
    abandoned = lone.map(bundles("label", jobs(site, clients())))
    next(abandoned)
    abandoned.close()  # type: ignore[attr-defined]
    done(lone, "label", jobs(site, clients()[3:]))
    assert {id: int(kept["asked"]) for id, kept in store.kept.items()} == {0: 1, 3: 1, 4: 1, 5: 1, 6: 1}


def handles() -> int:
    """How many files this process has open."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (handles come and go while their paths are made)


def test_closing_gives_back_every_handle() -> None:
    before, engine = handles(), Local(1)
    opened(engine, make_site(Remembering()))
    started = pids(engine)
    engine.close()
    engine.close()  # once more does no harm
    assert not any(alive(pid) for pid in started)
    del engine
    assert handles() == before
