"""The plainest engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from toys import Remembering, bundles, clients, done, jobs, make_site, opened, same

from potluck.core.errors import ConfigError
from potluck.core.threads import cores
from potluck.engines import make_engine
from potluck.engines.local import Local
from potluck.engines.serial import Serial


def test_updates_are_made_as_they_are_asked_for() -> None:
    site, engine, drawn = make_site(Remembering()), Serial(), []

    def counted():  # type: ignore[no-untyped-def]
        for job in jobs(site, clients()):
            drawn.append(job.client.id)
            yield job

    opened(engine, site)
    updates = engine.map(bundles("label", counted()))
    assert drawn == []
    assert next(updates).client.id == 0
    assert drawn == [0]


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """So many threads, whatever other tests have left behind."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_updates_and_what_stays_are_copies() -> None:
    site, engine = make_site(Remembering()), Serial()
    store = opened(engine, site)
    together = done(engine, "train", jobs(site, clients([site.task.largest])))
    one_by_one = []
    fresh = Serial()
    opened(fresh, site)
    for update in fresh.map(bundles("train", jobs(site, clients([site.task.largest])))):
        one_by_one.append({name: tensor.clone() for name, tensor in update.payload.items()})
    assert all(same(update.payload, alone) for update, alone in zip(together, one_by_one, strict=True))
    assert len({update.payload["0.weight"].data_ptr() for update in together}) == len(together)  # all still there
    assert not same(together[0].payload, together[1].payload)
    # that clients' biases differ would say nothing: in front of batch norm they learn from rounding alone
    assert all(torch.equal(store.kept[update.client.id]["own"], update.payload["0.bias"] + 0.1) for update in together)
    assert len({kept["own"].data_ptr() for kept in store.kept.values()}) == len(together)


def test_a_network_in_use_again_does_not_change_what_stayed_on_a_client() -> None:
    engine, live = Serial(), torch.zeros(1)

    def keep_live(site, job, personal):  # type: ignore[no-untyped-def]
        live.fill_(job.client.id)
        return {}, {"own": live}

    site = make_site(Remembering(), works={"keep live": keep_live})
    store = opened(engine, site)
    done(engine, "keep live", jobs(site, clients()[:3]))
    assert {id: kept["own"].item() for id, kept in store.kept.items()} == {0: 0.0, 1: 1.0, 2: 2.0}


def test_what_stays_on_a_client_is_there_the_next_time() -> None:
    site, engine = make_site(Remembering()), Serial()
    store = opened(engine, site)
    for _ in range(3):
        done(engine, "label", jobs(site, clients()[:2]))
    done(engine, "label", jobs(site, clients()[1:2]))
    assert {id: int(kept["asked"]) for id, kept in store.kept.items()} == {0: 3, 1: 4}


def test_a_client_that_cannot_take_part_says_why_and_keeps_what_it_had() -> None:
    site, engine = make_site(Remembering()), Serial()
    store = opened(engine, site)
    done(engine, "label", jobs(site, clients()))
    updates = done(engine, "decline", jobs(site, clients()))
    assert [update.failure for update in updates] == ["", "flat battery"] + [""] * 5
    assert updates[1].payload == {}
    assert int(store.kept[1]["asked"]) == 1


def test_work_is_done_on_one_thread_and_the_callers_number_comes_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        engine, seen = Serial(), []

        def look(*arguments):  # type: ignore[no-untyped-def]
            seen.append(torch.get_num_threads())
            return {}, {}

        site = make_site(Remembering(), works={"look": look})
        opened(engine, site)
        for _ in engine.map(bundles("look", jobs(site, clients()[:2]))):
            seen.append(torch.get_num_threads())
        assert seen == [1, 2, 1, 2]
    finally:
        torch.set_num_threads(before)


def test_engines_are_made_by_name() -> None:
    assert isinstance(make_engine("serial"), Serial)
    three, default = make_engine("local", 3), make_engine("local")
    assert isinstance(three, Local)
    assert isinstance(default, Local)
    assert (three.places, default.places) == (3, cores())
    assert three.workers == []  # none before it is opened
    with pytest.raises(ConfigError, match="there is no engine 'locl'; did you mean 'local'"):
        make_engine("locl")
