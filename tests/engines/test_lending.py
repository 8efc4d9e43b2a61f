"""Updates are read where they lie: never overwritten while somebody has them, never copied without need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
import torch
from crew import crew
from torch import Tensor
from toys import UNHEARD_OF, WIDE, Remembering, bundles, clients, done, jobs, make_site, opened, same

from potluck.core import tensors
from potluck.core.client import Site
from potluck.core.engine import Engine
from potluck.core.types import Client, Job, Tensors, Update
from potluck.engines import slot as slot_module
from potluck.engines.local import Local
from potluck.engines.process import SLOTS
from potluck.engines.serial import Serial
from potluck.engines.slot import Slot

LARGE = 50_000


def filled(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """A large answer that tells the job, and a small one."""
    return {"all": job.payload["number"].expand(LARGE).clone(), "half": job.payload["number"] / 2}, {}


def filling() -> Site:
    return make_site(Remembering(), works={"fill": filled})


def numbered(count: int, bundle: int = 1) -> Iterator[list[Job]]:
    """Jobs to fill a tensor each with their number."""
    given = (Job(Client(n, WIDE, 20, (0,)), 0, {"number": torch.tensor([float(n)])}) for n in range(count))
    return bundles("fill", given, bundle)


def right(number: int, payload: Mapping[str, Tensor]) -> bool:
    return bool((payload["all"] == number).all()) and payload["half"].item() == number / 2


def ready(local: Local) -> Local:
    opened(local, filling())
    return local


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tensors the engine copied out, each time that it did."""
    made: list[int] = []

    def counted(of: Mapping[str, Tensor]) -> Tensors:
        if of:
            made.append(len(of))
        return tensors.copied(of)

    monkeypatch.setattr(slot_module, "copied", counted)
    return made


@pytest.fixture(scope="module")
def local() -> Iterator[Local]:
    """Two workers whose memory no other test has a part of: one that fails holds on to what it saw."""
    engine = Local(2)
    yield engine
    engine.close()


def lent(engine: Local) -> int:
    return sum(slot.lent for worker in engine.workers for slot in worker.slots)


@pytest.mark.parametrize("bundle", [1, 4])
@pytest.mark.parametrize("workers", [1, 2])
def test_updates_that_are_kept_are_never_overwritten(local: Local, workers: int, bundle: int) -> None:
    with crew(ready(local), workers) as engine:
        kept = list(engine.map(numbered(40, bundle)))
        assert [update.client.id for update in kept] == list(range(40))
        assert all(right(number, update.payload) for number, update in enumerate(kept))
        later = list(engine.map(numbered(30, bundle)))  # in the next round, too
        assert all(right(number, update.payload) for number, update in enumerate(kept))
        serial = Serial()
        opened(serial, filling())
        expected = serial.map(numbered(30, bundle))
        assert all(same(update.payload, other.payload) for update, other in zip(later, expected, strict=True))
    del kept, later
    assert lent(local) == 0


def test_a_part_of_an_update_that_is_kept_is_never_overwritten(local: Local) -> None:
    parts = {
        update.client.id: update.payload["all"][::1000].view(-1, 10)
        for update in ready(local).map(numbered(60))
        if update.client.id % 3 == 0
    }
    assert sorted(parts) == list(range(0, 60, 3))
    assert all(bool((part == number).all()) for number, part in parts.items())


@pytest.mark.parametrize("bundle", [1, 4])
def test_a_consumer_that_keeps_none_makes_the_engine_copy_none(local: Local, copies: list[int], bundle: int) -> None:
    with crew(ready(local), 1) as engine:
        for update in engine.map(numbered(40, bundle)):
            assert right(update.client.id, update.payload)
            assert lent(engine) >= 1  # this one at least
        assert copies == []
        del update
        assert lent(engine) == 0


def test_a_consumer_that_keeps_all_makes_it_copy_what_would_block_it(local: Local, copies: list[int]) -> None:
    with crew(ready(local), 1) as engine:
        kept = list(engine.map(numbered(40)))
        assert 40 - SLOTS <= len(copies) < 40  # and some are still where they were
        assert 1 <= lent(engine) <= SLOTS
        del kept
        assert lent(engine) == 0


def test_what_stays_on_a_client_is_a_copy(local: Local, copies: list[int]) -> None:
    site = make_site(Remembering())
    store = opened(local, site)
    for _ in range(3):
        assert sum(1 for _ in local.map(bundles("label", jobs(site, clients())))) == 7
    assert {id: int(kept["asked"]) for id, kept in store.kept.items()} == dict.fromkeys(range(7), 3)
    assert lent(local) == 0
    assert len(copies) >= 21


def test_what_is_lent_may_outlive_its_slot() -> None:
    """As updates that are kept after their engine was closed."""
    slot = Slot.create()
    layout, _ = slot.write({"w": torch.arange(5.0)})
    kept = slot.lend(layout)["w"]
    slot.close()
    del slot
    assert kept.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


# ---- threads ----


def raising() -> Iterator[list[Job]]:
    yield from numbered(2)
    raise OSError("no more jobs")


def exhaust(engine: Engine) -> None:
    assert [torch.get_num_threads() for _ in engine.map(numbered(4))]


def close_early(engine: Engine) -> None:
    updates = engine.map(numbered(9))
    next(updates)
    updates.close()  # type: ignore[attr-defined]


def forget(engine: Engine) -> None:
    updates: Iterator[Update] = engine.map(numbered(9))
    next(updates)
    del updates


def fail_work(engine: Engine) -> None:
    updates = done(engine, "fail", jobs(filling(), clients()))
    assert "upside down" in updates[1].failure


def break_work(engine: Engine) -> None:
    with pytest.raises(RuntimeError, match="broke down"):
        done(engine, UNHEARD_OF, jobs(filling(), clients()))


def break_jobs(engine: Engine) -> None:
    with pytest.raises(OSError, match="no more jobs"):
        list(engine.map(raising()))


@pytest.mark.parametrize("place", ["serial", "local"])
@pytest.mark.parametrize("end", [exhaust, close_early, forget, fail_work, break_work, break_jobs])
def test_the_callers_number_of_threads_comes_back(local: Local, place: str, end: Callable[[Engine], None]) -> None:
    engine: Engine = Serial() if place == "serial" else local
    opened(engine, filling())
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        end(engine)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_while_workers_work_the_parent_is_one_thread(local: Local) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        updates = ready(local).map(numbered(3))
        assert torch.get_num_threads() == 2  # nothing has begun
        assert [torch.get_num_threads() for _ in updates] == [1, 1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
