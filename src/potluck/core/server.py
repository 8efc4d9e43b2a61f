"""The server's side: who takes part in a round, and the round itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from types import MappingProxyType

import torch
from torch import Tensor

from potluck.core.client import train
from potluck.core.clock import Clock
from potluck.core.engine import Engine
from potluck.core.errors import UpdateError
from potluck.core.fleet import Fleet
from potluck.core.method import Method
from potluck.core.tensors import require_finite, size_in_bytes
from potluck.core.types import Client, Context, Job, Tensors, Update


@dataclass
class Ledger:
    """What one exchange with the clients cost, and who failed."""

    clients: int = 0
    per_level: dict[str, int] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0
    macs: int = 0
    failures: list[dict[str, object]] = field(default_factory=list)
    client_seconds: float = 0.0
    clock: Clock = field(default_factory=Clock, repr=False, compare=False)


def cohort_size(cohort: int | float, able: int) -> int:
    """How many clients a round has: a whole number of them, or a share of those able to take part, rounded up."""
    wanted = cohort if isinstance(cohort, int) else math.ceil(round(cohort * able, 9))
    return min(wanted, able)


def draw_cohort(
    method: Method, fleet: Fleet, cohort: int | float, macs: Mapping[str, int], ctx: Context
) -> list[Client]:
    """Clients drawn without replacement from those the method admits, longest job first.

    The order is part of the result, since sums are taken in it: so it comes from counted work
    (MACs x examples), which every engine and every machine agrees on, never from measured time.
    Turns count on from round to round, as far as cohorts are equally large.
    """
    able = torch.tensor([method.admits(level, ctx) for level in fleet.levels])

    def pick(count: int) -> Tensor:
        drawn = torch.randperm(count, generator=ctx.rng("cohort"), dtype=torch.int32)
        return drawn[: cohort_size(cohort, count)].clone()  # the others are let go

    if fleet.assignment.per_cohort:
        picked = pick(len(fleet))
        capacity = fleet.deal(len(picked), ctx.round).long()
        picked, capacity = picked[able[capacity]], capacity[able[capacity]]
    else:
        everyone = fleet.deal(len(fleet), ctx.round)
        able_so_far = able.index_select(0, everyone.int()).cumsum(0, dtype=torch.int32)  # up to each client
        picked = torch.searchsorted(able_so_far, pick(int(able_so_far[-1])) + 1)
        capacity = everyone[picked]
    clients = [fleet.client(int(id), fleet.levels[int(at)]) for id, at in zip(picked, capacity, strict=True)]
    clients.sort(key=lambda client: (-macs[client.level.name] * client.size, client.id))
    return [replace(client, turn=ctx.round * len(clients) + place) for place, client in enumerate(clients)]


def issue(
    method: Method,
    state: Tensors,
    cohort: Iterable[Client],
    ctx: Context,
    ledger: Ledger,
    stacks: Mapping[str, int] = MappingProxyType({}),
    meanwhile: Callable[[], None] = lambda: None,
) -> Iterator[Job]:
    """The cohort's jobs, each made when an engine has room for it; `meanwhile` is called when all have been taken."""
    for together in bundles(cohort, stacks):
        for client in together:
            with ledger.clock.spent("extraction"):
                payload = method.distribute(state, client, ctx)
                ledger.bytes_down += size_in_bytes(payload)
            yield Job(client, ctx.round, payload, len(together))
    meanwhile()


def bundles(cohort: Iterable[Client], stacks: Mapping[str, int]) -> Iterator[list[Client]]:
    """Clients that are trained at once: as many neighbours of one level and size as its stack holds, evenly divided.

    Which clients are together depends on the cohort alone, never on who has time.
    """
    for (level, _), alike in groupby(cohort, key=lambda client: (client.level.name, client.size)):
        clients = list(alike)
        parts = -(-len(clients) // stacks.get(level, 1))
        ends = [len(clients) * part // parts for part in range(parts + 1)]
        yield from (clients[start:end] for start, end in pairwise(ends))


def accept(updates: Iterable[Update], ledger: Ledger, seen: Callable[[Update], None]) -> Iterator[Update]:
    """The updates that can be used; the others are counted, with the reason."""
    for update in updates:
        ledger.clients += 1
        ledger.client_seconds += update.seconds
        ledger.bytes_up += size_in_bytes(update.payload)
        level = update.client.level.name
        ledger.per_level[level] = ledger.per_level.get(level, 0) + 1
        seen(update)
        try:
            if update.failure:
                raise UpdateError(update.failure)
            require_finite(update.payload)
        except UpdateError as error:
            ledger.failures.append({"client": update.client.id, "level": level, "reason": str(error)})
            continue
        yield update


def play_round(
    method: Method,
    state: Tensors,
    cohort: Iterable[Client],
    engine: Engine,
    ctx: Context,
    macs: Mapping[str, int],
    seen: Callable[[Update], None] = lambda update: None,
    stacks: Mapping[str, int] = MappingProxyType({}),
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[Tensors, Ledger]:
    """One round: distribute, train, aggregate. Returns the next state and what it cost.

    `meanwhile` is called once, while the last clients train.
    """
    ledger = Ledger(clock=engine.clock)

    def count(update: Update) -> None:
        work = macs[update.client.level.name] * update.client.size * ctx.task.train.epochs
        ledger.macs += 0 if update.failure else work
        seen(update)

    updates = engine.map(train, issue(method, state, cohort, ctx, ledger, stacks, meanwhile))
    with engine.clock.spent("aggregation"):
        state = method.aggregate(state, accept(updates, ledger, count), ctx)
    return state, ledger
