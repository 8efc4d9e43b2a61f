"""Real rounds on the bench, and how a check says what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.contract.bench import Bench
from potluck.core.clock import Clock
from potluck.core.engine import Engine
from potluck.core.names import under
from potluck.core.server import Failure, Server, first_state
from potluck.core.store import Memory
from potluck.core.types import Job, Tensors, Update
from potluck.engines import make_engine


class ContractError(Exception):
    """A method does not do what Potluck expects of every method."""


def require(holds: bool, otherwise: str) -> None:
    """Break off with a sentence unless something holds."""
    if not holds:
        raise ContractError(otherwise)


def difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> str:
    """What is not bit for bit the same in two sets of tensors; empty if nothing is."""
    if set(one) != set(other):
        return f"the names {sorted(set(one) ^ set(other))} are on one side only"
    unequal = [name for name in one if not torch.equal(one[name], other[name])]
    return f"{unequal} differ" if unequal else ""


@dataclass(frozen=True)
class Played:
    """What some real rounds led to."""

    state: Tensors
    kept: dict[int, Tensors]  # what stays on each client
    failures: list[Failure]

    def tensors(self) -> Tensors:
        """All of it by name, to compare."""
        kept = (under(f"client {id}", tensors) for id, tensors in self.kept.items())
        return {**under("state", self.state), **{name: t for own in kept for name, t in own.items()}}


def played(bench: Bench, engine: Engine, rounds: int = 1) -> Played:
    """Play some real rounds."""
    experiment, store, failures = bench.experiment, Memory(), list[Failure]()
    engine.open(experiment.site, experiment.desk, store, Clock())
    server = Server(experiment.recipe, engine, client_failed=failures.append)
    state = first_state(bench.method, bench.context())
    for round in range(rounds):
        state, _ = server.play(state, bench.clients(), bench.context(round))
    return Played(state, store.kept, failures)


def serially(bench: Bench, rounds: int = 1) -> Played:
    """Play some real rounds in this process."""
    return played(bench, make_engine("serial"), rounds)


def answers(bench: Bench, jobs: Sequence[Job]) -> list[Update]:
    """What clients on which nothing has stayed yet answer."""
    engine = make_engine("serial")
    engine.open(bench.experiment.site, bench.experiment.desk, Memory(), Clock())
    return list(engine.map([job] for job in jobs))
