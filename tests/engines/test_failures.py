"""Whose fault it is: a user's code that fails is a client's failure with its place, a fault of ours ends the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from faulty import BUGS, OF_ONE, WHO, Buggy, buggy_site, mlp, nobody, place_of
from toys import UNHEARD_OF, WIDE, Remembering, bundles, clients, done, jobs, make_site, opened, same

from potluck.core.client import Site
from potluck.core.engine import Engine
from potluck.core.errors import ConfigError
from potluck.core.types import Client, Job, Tensors, Update
from potluck.engines.local import Local
from potluck.engines.serial import Serial

SIZES = {"one by one": 1, "stacked": 4}
ALL = range(7)


def trained(engine: Engine, site: Site, size: int, who: Sequence[Client] | None = None, round: int = 0) -> list[Update]:
    """What comes of a request to train, so many clients at once."""
    opened(engine, site)
    return list(engine.map(bundles("train", jobs(site, who or clients([WIDE]), round), size)))


def failed(updates: Sequence[Update]) -> dict[int, str]:
    """Who failed, and why."""
    return {update.client.id: update.failure for update in updates if update.failure}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("where", BUGS)
def test_failing_code_of_a_users_becomes_a_failure_with_its_file_and_line(
    engine: Engine, where: str, size: int
) -> None:
    site = buggy_site(where)
    updates = trained(engine, site, size)
    assert [update.client.id for update in updates] == list(ALL)
    function = {"loss": "buggy_loss", "prepare": "buggy_prepare"}.get(where, where)
    start = f"{function} in {place_of(where)} raised {BUGS[where]}"
    reason = updates[WHO].failure
    assert reason.startswith(start)
    assert updates[WHO].payload == {}
    assert all(found.startswith(start) for found in failed(updates).values())
    assert set(failed(updates)) == ({WHO} if where in OF_ONE else set(ALL))


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("where", BUGS)
def test_every_engine_fails_in_the_same_words(local: Local, where: str, size: int) -> None:
    site = buggy_site(where)
    serial, ours = (trained(engine, site, size) for engine in (Serial(), local))
    assert failed(serial) == failed(ours) != {}
    assert all(same(one.payload, other.payload) for one, other in zip(serial, ours, strict=True))


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("where", OF_ONE)
def test_a_client_that_fails_takes_nobody_along(engine: Engine, where: str, size: int) -> None:
    updates = trained(engine, buggy_site(where), size)
    assert set(failed(updates)) == {WHO}
    sound = trained(Serial(), make_site(Buggy(), mlp), 1)
    for update in updates:
        if update.client.id != WHO:
            assert all(
                torch.allclose(update.payload[n], t, atol=1e-5) for n, t in sound[update.client.id].payload.items()
            )


def test_a_client_that_failed_keeps_what_it_had(engine: Engine) -> None:
    site = make_site(Remembering())
    store = opened(engine, site)
    for work in ("label", "fail"):
        updates = done(engine, work, jobs(site, clients()))
    assert failed(updates)[1].endswith("raised ValueError: the weights are upside down")
    assert {id: int(kept["asked"]) for id, kept in store.kept.items()} == {**dict.fromkeys(ALL, 2), 1: 1}


@pytest.mark.parametrize("file", ["<stdin>", "<ipython-input-7-1a2b3c>", "/tmp/ipykernel_1/2.py"])
def test_code_from_a_prompt_or_a_notebook_is_named_too(engine: Engine, file: str) -> None:
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def own(site, job, personal):\n\n    return job.payload['typo'], {}\n", file, "exec"), made)
    site = make_site(Remembering(), works={"own": made["own"]})
    opened(engine, site)
    (update,) = done(engine, "own", jobs(site, clients()[:1]))
    assert update.failure == f"own in {file}:3 raised KeyError: 'typo'"


def returning(answer: object) -> Callable[[Site, Job, Tensors], Any]:
    return lambda site, job, personal: answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (([1.0], {}), "it is a list, but"),
        (({"w": 1.0}, {}), "'w' is a float, but it should be a tensor"),
        (({3: torch.ones(2)}, {}), "it names a tensor 3, but names are text"),
        (({"w": torch.ones(2, device="meta")}, {}), "'w' has a shape but no values"),
        (({"w": torch.eye(2).to_sparse()}, {}), "'w' is not a dense tensor"),
        (({}, {"own": None}), "'own' is a NoneType, but it should be a tensor"),
    ],
)
def test_an_answer_that_cannot_be_sent_is_a_failure(engine: Engine, answer: object, reason: str) -> None:
    site = make_site(Remembering(), works={"own": returning(answer)})
    store = opened(engine, site)
    updates = done(engine, "own", jobs(site, clients()[:2]))
    assert [update.failure.startswith(reason) for update in updates] == [True, True]
    assert not any(update.payload for update in updates)
    assert store.kept == {}


@pytest.mark.parametrize("answer", [None, {"w": torch.ones(2)}, (1, 2, 3)])
def test_an_answer_of_another_shape_is_a_failure_too(engine: Engine, answer: object) -> None:
    site = make_site(Remembering(), works={"own": returning(answer)})
    opened(engine, site)
    assert all(update.failure for update in done(engine, "own", jobs(site, clients()[:2])))


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("who", [0, 6])
def test_a_collect_that_forgets_what_stays_is_a_failure_of_its_client(engine: Engine, who: int, size: int) -> None:
    class Forgetful(Buggy):
        def collect(self, net: Any, job: Job, ctx: Any) -> Any:
            sent, kept = super().collect(net, job, ctx)
            return sent if job.client.id == who else (sent, kept)

    assert set(failed(trained(engine, make_site(Forgetful(), mlp), size))) == {who}


# ---- ours ----


def breakdown(engine: Engine, run: Callable[[], object]) -> tuple[type[Exception], str]:
    """The error without its traceback, which would keep updates and their slots for the tests to come."""
    try:
        run()
    except Exception as error:
        return type(error), str(error)
    raise AssertionError("it did not break down")


@pytest.mark.parametrize("round", [0, 4])
def test_a_fault_of_ours_names_client_level_and_round(engine: Engine, round: int) -> None:
    site = make_site(Remembering())
    opened(engine, site)
    kind, message = breakdown(engine, lambda: done(engine, UNHEARD_OF, jobs(site, clients()[1:2], round)))
    assert kind is RuntimeError
    assert message.startswith(f"client 1 of level 'narrow' in round {round + 1} broke down:")
    assert f"KeyError: '{UNHEARD_OF}'" in message


@pytest.mark.parametrize(("size", "named"), [(1, "client 99"), (3, "client 0")], ids=SIZES)
def test_a_fault_of_ours_while_training_names_client_level_and_round(engine: Engine, size: int, named: str) -> None:
    """Of clients that are trained at once, it names the first."""
    first, second, *_ = clients([WIDE])
    site = make_site(Buggy(), mlp)
    kind, message = breakdown(engine, lambda: trained(engine, site, size, [first, nobody(second), second], round=1))
    assert kind is RuntimeError
    assert message.startswith(f"{named} of level 'wide' in round 2 ")
    assert "broke down:" in message
    assert "IndexError" in message
    assert all(update.failure == "" for update in trained(engine, site, size))  # the engine goes on


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_mistake_in_the_settings_ends_the_run_as_it_is(engine: Engine, size: int) -> None:
    class Fussy(Buggy):
        def localize(self, job: Job, ctx: Any, personal: Tensors) -> Any:
            raise ConfigError("the moon is full; wait a day")

    found = breakdown(engine, lambda: trained(engine, make_site(Fussy(), mlp), size))
    assert found == (ConfigError, "the moon is full; wait a day")


# ---- another run ----


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_job_of_another_run_is_refused(engine: Engine, size: int) -> None:
    site, other = make_site(Buggy(), mlp, run="0123456789abcdef"), make_site(Buggy(), mlp, run="fedcba9876543210")
    opened(engine, site)
    updates = list(engine.map(bundles("train", jobs(other, clients([WIDE])), size)))
    reason = "the job is of run fedcba987654, but this machine is set up for 0123456789ab"
    assert failed(updates) == dict.fromkeys(ALL, reason)
    assert failed(trained(engine, site, size)) == {}
