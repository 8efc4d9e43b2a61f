"""The server's side: who takes part in a round, and the round itself."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise

import torch
from torch import Tensor

from potluck.core.clock import Clock
from potluck.core.engine import Engine
from potluck.core.errors import UpdateError
from potluck.core.fleet import Fleet
from potluck.core.form import Form
from potluck.core.guard import Epochs, Guard, epochs_of, expected
from potluck.core.method import Method
from potluck.core.recipe import Recipe
from potluck.core.tensors import laid_out, size_in_bytes
from potluck.core.threads import one_thread
from potluck.core.types import Client, Context, Job, Tensors, Update

TOLD = {"train": "was left out of", "calibrate": "measured no batch norm in", "score": "was not scored in"}


@dataclass(frozen=True)
class Failure:
    """An update that was left out, and why."""

    client: int
    level: str
    round: int  # counted from 1, as people do
    reason: str
    work: str = "train"  # what it was asked for
    name: str = ""  # of the client, if clients have names

    def __str__(self) -> str:
        told = TOLD.get(self.work, TOLD["train"])
        who = f"'{self.name}'" if self.name else self.client
        return f"client {who} ({self.level}) {told} round {self.round}: {self.reason}"


@dataclass
class Ledger:
    """What one exchange with the clients cost, and who failed."""

    clients: int = 0
    per_level: dict[str, int] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0
    macs: int = 0
    failures: list[Failure] = field(default_factory=list)
    client_seconds: float = 0.0

    @property
    def used(self) -> int:
        """How many updates were used."""
        return self.clients - len(self.failures)


@dataclass(frozen=True)
class Server:
    """What a server needs beside its state, from the first round to the last."""

    recipe: Recipe
    engine: Engine
    guard: Guard = field(default_factory=Guard)
    clock: Clock = field(default_factory=Clock)
    macs: Mapping[str, int] = field(default_factory=dict)  # of one example's forward pass, by level
    stacks: Mapping[str, int] = field(default_factory=dict)  # how many clients of a level are trained at once
    client_done: Callable[[Update], None] | None = None
    client_failed: Callable[[Failure], None] | None = None

    def play(
        self, state: Tensors, cohort: Iterable[Client], ctx: Context, meanwhile: Callable[[], None] = lambda: None
    ) -> tuple[Tensors, Ledger]:
        """One round: distribute, train, aggregate. Returns the next state and what it cost.

        Every client trains, whether or not the method looks at its update. A round from which no update can be used
        leaves the state as it is. `meanwhile` is called once, while the last clients train.
        """
        ledger = Ledger()
        jobs = self.jobs("train", state, bundles(cohort, self.stacks), ctx, meanwhile)
        updates = self.exchange(jobs, ctx, ledger)
        with one_thread(), self.clock.spent("aggregation"):  # threads that have nothing to do would keep cores busy
            new = self.recipe.method.aggregate(state, updates, ctx)
            deque(updates, maxlen=0)
            return (laid_out(new) if ledger.used else state), ledger

    def jobs(
        self,
        work: str,
        state: Tensors,
        together: Iterable[list[Client]],
        ctx: Context,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Iterator[list[Job]]:
        """The jobs of clients, each bundle made when an engine has room for it; then `meanwhile` is called."""
        for clients in together:
            with self.clock.spent("extraction"):
                made = [
                    Job(client, ctx.round, self.recipe.method.distribute(state, client, ctx), work, self.recipe.run)
                    for client in clients
                ]
            yield made
        meanwhile()

    def exchange(self, jobs: Iterable[list[Job]], ctx: Context, ledger: Ledger) -> Iterator[Update]:
        """The answers to jobs, in their order, that pass the guard; the others are counted, with the reason."""
        issued: deque[Job] = deque()
        epochs: dict[str, Epochs] = {}
        asked, form, down, up = None, Form(), 0, 0

        def noted() -> Iterator[list[Job]]:
            for bundle in jobs:
                issued.extend(bundle)
                yield bundle

        for update in self.engine.map(noted()):
            job = issued.popleft()
            level = job.client.level.name
            ledger.clients += 1
            ledger.per_level[level] = ledger.per_level.get(level, 0) + 1
            ledger.client_seconds += update.seconds
            if self.client_done:
                self.client_done(update)
            with self.clock.spent("guard"):
                if asked is None or asked.payload is not job.payload or asked.client.level != job.client.level:
                    asked, form, down, up = job, Form(), size_in_bytes(job.payload), 0
                ledger.bytes_down += down
                try:
                    if not update.failure:
                        form = form or expected(self.recipe.method, job, ctx)
                        if level not in epochs:
                            epochs[level] = epochs_of(self.recipe.method, job, ctx)
                        ledger.macs += self.macs.get(level, 0) * epochs[level].examples(job.client, ctx.task)
                    self.guard.check(update, job, form)
                except UpdateError as error:
                    ledger.failures.append(Failure(job.client.id, level, job.round + 1, str(error), job.work))
                    if self.client_failed:
                        self.client_failed(ledger.failures[-1])
                    continue
                up = up or size_in_bytes(update.payload)  # what passes has the form that was asked for
                ledger.bytes_up += up
            yield update


def first_state(method: Method, ctx: Context) -> Tensors:
    """The server's state before the first round, laid out as it will be after every other."""
    return laid_out(method.init(ctx))


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
        return drawn[: cohort_size(cohort, count)].clone()  # so that the rest can be freed

    if fleet.assignment.per_cohort:
        picked = pick(len(fleet))
        capacity = fleet.deal(len(picked), ctx.round).long()
        picked, capacity = picked[able[capacity]], capacity[able[capacity]]
    else:
        everyone = fleet.deal(len(fleet), ctx.round)
        able_so_far = able.index_select(0, everyone.int()).cumsum(0, dtype=torch.int32)  # up to each client
        picked = torch.searchsorted(able_so_far, pick(int(able_so_far[-1])) + 1)
        capacity = everyone[picked]
    drawn = [(id, fleet.levels[at]) for id, at in zip(picked.tolist(), capacity.tolist(), strict=True)]
    drawn.sort(key=lambda client: (-macs[client[1].name] * fleet.holder.size(client[0]), client[0]))
    return [fleet.client(*client, turn=ctx.round * len(drawn) + place) for place, client in enumerate(drawn)]


def bundles(cohort: Iterable[Client], stacks: Mapping[str, int]) -> Iterator[list[Client]]:
    """Clients that are trained at once: as many neighbours of one level and size as its stack holds, evenly divided.

    Which clients are together depends on the cohort alone, never on who has time.
    """
    for (level, _), alike in groupby(cohort, key=lambda client: (client.level.name, client.size)):
        clients = list(alike)
        parts = -(-len(clients) // stacks.get(level, 1))
        ends = [len(clients) * part // parts for part in range(parts + 1)]
        yield from (clients[start:end] for start, end in pairwise(ends))
