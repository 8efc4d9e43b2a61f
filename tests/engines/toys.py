"""A small federation, a method that keeps something on its clients, and work that goes wrong in several ways."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from torch import nn

from potluck.core.client import Site, Work, train
from potluck.core.clock import Clock
from potluck.core.data import Arrays, Holdings, Pool
from potluck.core.desk import Desk
from potluck.core.engine import Engine
from potluck.core.errors import UpdateError
from potluck.core.method import Method
from potluck.core.networks import ByWidth
from potluck.core.recipe import Recipe
from potluck.core.server import Server, first_state
from potluck.core.store import Memory, Store
from potluck.core.tensors import state_of
from potluck.core.types import Client, Context, Job, Level, Task, Tensors, Train, Update

WIDE, NARROW = Level("wide", 1.0), Level("narrow", 0.5)
CLIENTS, EACH = 7, 20
INPUTS = 200  # so that all inputs together are worth sharing rather than copying


def net(width: float) -> nn.Module:
    """With batch norm and dropout: what depends on the order of draws would show."""
    hidden = round(8 * width)
    return nn.Sequential(
        nn.Linear(INPUTS, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.3), nn.Linear(hidden, 3)
    )


@dataclass(frozen=True)
class Remembering(Method):
    """Every client keeps a bias of its own; `folder` is where work leaves marks."""

    folder: str = ""

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        net = super().localize(job, ctx, personal)
        if personal:
            net.get_parameter("0.bias").data.copy_(personal["own"])
        return net

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        sent = state_of(net)
        return sent, {"own": sent["0.bias"] + 0.1, "round": torch.tensor(job.round)}


def make_site(
    method: Method,
    model: Callable[[float], nn.Module] = net,
    works: Mapping[str, Work] | None = None,
    run: str = "",
) -> Site:
    """A place with all clients, which can do the work below by its name, and more if it is told how."""
    rng = torch.Generator().manual_seed(0)
    count = CLIENTS * EACH
    examples = Arrays(torch.randn(count, INPUTS, generator=rng), torch.arange(count) % 3)
    holdings = Holdings.of_lists(list(torch.split(torch.arange(count), EACH)))
    example = (torch.zeros(1, INPUTS), torch.zeros(1, dtype=torch.long))
    heads = dict.fromkeys((WIDE.name, NARROW.name), ("4.weight", "4.bias"))
    settings = Train(epochs=2, batch_size=8)
    task = Task(ByWidth(model), (WIDE, NARROW), 3, heads, example, settings, rounds=2)
    return Site(Recipe(method, task, 11, run=run), Pool(examples, holdings), works={**WORKS, **(works or {})})


def make_desk(site: Site) -> Desk:
    """The server's own place, with examples that no client has."""
    rng = torch.Generator().manual_seed(1)
    return Desk(site.recipe, Arrays(torch.randn(50, INPUTS, generator=rng), torch.arange(50) % 3))


def opened(engine: Engine, site: Site) -> Memory:
    """Open an engine for a site on whose clients nothing has stayed yet; what will stay on them."""
    store = Memory()
    open_with(engine, site, store)
    return store


def open_with(engine: Engine, site: Site, store: Store) -> None:
    """Open an engine for a site, whatever has stayed on its clients."""
    engine.open(site, make_desk(site), store, Clock())


def clients(levels: Iterable[Level] = (WIDE, NARROW)) -> list[Client]:
    chosen = list(levels)
    return [Client(id, chosen[id % len(chosen)], EACH, (0, 1, 2)) for id in range(CLIENTS)]


def jobs(site: Site, of: Iterable[Client], round: int = 0) -> Iterator[Job]:
    state = site.method.init(site.context(0))
    for client in of:
        yield Job(client, round, site.method.distribute(state, client, site.context(round)), run=site.recipe.run)


def bundles(work: str, jobs: Iterable[Job], size: int = 1) -> Iterator[list[Job]]:
    """Jobs that ask for this work, so many in a bundle, each drawn when an engine asks for it."""
    waiting = iter(jobs)
    while bundle := [replace(job, work=work) for job in islice(waiting, size)]:
        yield bundle


def done(engine: Engine, work: str, jobs: Iterable[Job]) -> list[Update]:
    """What comes of jobs, each a bundle of its own."""
    return list(engine.map(bundles(work, jobs)))


def played(engine: Engine, site: Site, rounds: int = 2) -> tuple[Tensors, dict[int, Tensors]]:
    """The state and what stayed on the clients after some real rounds."""
    store, server = opened(engine, site), Server(site.recipe, engine, macs={"wide": 1, "narrow": 1})
    state = first_state(site.method, site.context(0))
    for round in range(rounds):
        state, ledger = server.play(state, clients(), site.context(round))
        assert ledger.clients == CLIENTS
        assert not ledger.failures
    return state, store.kept


def same(one: Tensors, other: Tensors) -> bool:
    """Bit for bit, in value and type."""
    return set(one) == set(other) and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


def mark(site: Site, job: Job) -> Path:
    assert isinstance(site.method, Remembering)
    return Path(site.method.folder) / f"{job.client.id}-{job.round}"


# ---- work ----


def label(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """Answers at once with who it is, and counts on its client how often it was asked."""
    return {"id": torch.tensor(job.client.id)}, {"asked": personal.get("asked", torch.tensor(0)) + 1}


def doubled(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """Answers with a tensor as large as it was sent, and keeps another."""
    return {"twice": 2 * job.payload["data"]}, {"kept": job.payload["data"] + 1}


def straggling(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """The first client takes its time."""
    if job.client.id == 0:
        time.sleep(1.0)
    return {"id": torch.tensor(job.client.id)}, {}


def train_but_one_dies_once(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """Client 2 takes its process down the first time, when it has all but answered."""
    answer = train(site, job, personal)
    die_once(site, job, who=(2,))
    return answer


def train_but_two_die_once(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """So do clients 2 and 3, one after the other."""
    die_once(site, job, who=(2, 3))
    return train(site, job, personal)


def die_once(site: Site, job: Job, who: tuple[int, ...]) -> None:
    if job.client.id in who and not mark(site, job).exists():
        mark(site, job).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def die(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """Client 1 takes its process down, always."""
    if job.client.id == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return label(site, job, personal)


def fail(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """Client 1 runs into a bug of its user's."""
    if job.client.id == 1:
        raise ValueError("the weights are upside down")
    return label(site, job, personal)


def decline(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """Client 1 cannot take part."""
    if job.client.id == 1:
        raise UpdateError("flat battery")
    return label(site, job, personal)


def sleep_long(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    mark(site, job).touch()
    time.sleep(120)
    return {}, {}


WORKS: dict[str, Work] = {
    work.__name__: work
    for work in (
        label,
        doubled,
        straggling,
        train_but_one_dies_once,
        train_but_two_die_once,
        die,
        fail,
        decline,
        sleep_long,
    )
}
"""The work above, by name."""

UNHEARD_OF = "unheard of"
"""Work that no site knows: asking for it is a fault of Potluck's own, which no user's code has a part in."""
