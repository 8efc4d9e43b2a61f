"""How good every level's model is.

A shared model is exported, calibrated by clients where the method asks for it, and scored by the server on its own
machine: the test examples are cut into pieces, always the same, which are scored side by side. A model that differs
from client to client is scored by its client.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from potluck.core.calibration import combine, norms
from potluck.core.desk import STATE, STATISTICS, Piece, score_piece
from potluck.core.evaluate import Score, Sums, added, from_tensors, means_of
from potluck.core.names import under
from potluck.core.random import stream
from potluck.core.server import Ledger, Server
from potluck.core.types import Client, Context, Level, Tensors
from potluck.study.experiment import Experiment

PIECES = 8  # of the test examples; more would mean more networks to set up, fewer workers that wait at the end
OCCASIONS = itertools.count()  # tells one evaluation from another: a network serves all pieces of the same


@dataclass(frozen=True)
class Scored:
    """Scores by level name, what clients measured for each level's model, and what asking them cost."""

    scores: dict[str, Score] = field(default_factory=dict)
    statistics: dict[str, Tensors] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)


def score_levels(experiment: Experiment, server: Server, state: Tensors, round: int) -> Scored:
    """Score every admitted level's model, or the models of its clients."""
    scored = Scored()
    if experiment.method.shares_model:
        for level in experiment.admitted():
            scored.statistics[level.name] = measured(experiment, server, state, level, round, scored.ledger)
        totals = shared_sums(experiment, server, state, scored.statistics, round)
    else:
        totals = own_sums(experiment, server, state, round, scored.ledger)
    scored.scores.update((level, means_of(sums, experiment.task.goal)) for level, sums in totals.items())
    return scored


def measured(
    experiment: Experiment, server: Server, state: Tensors, level: Level, round: int, ledger: Ledger
) -> Tensors:
    """The batch-norm statistics that a level's model needs, measured by the clients; nothing if it needs none."""
    ctx = experiment.site.context(round)
    if not experiment.method.calibrated or not has_norms(experiment, state, level, ctx):
        return {}
    fleet = experiment.fleet
    asked = torch.randperm(len(fleet), generator=ctx.rng("calibration"), dtype=torch.int32)
    chosen = sorted(asked[: experiment.settings.task.calibration_clients].tolist())
    del asked  # millions, perhaps
    together = ([fleet.client(id, level)] for id in chosen)
    return combine(server.exchange(server.jobs("calibrate", state, together, ctx), ctx, ledger))


def has_norms(experiment: Experiment, state: Tensors, level: Level, ctx: Context) -> bool:
    """Whether a level's model has batch norm."""
    return ctx.memo.latest((has_norms, level), (), lambda: bool(norms(experiment.method.export(state, level, ctx))))


def shared_sums(
    experiment: Experiment, server: Server, state: Tensors, statistics: dict[str, Tensors], round: int
) -> dict[str, Sums]:
    """What all test examples add up to for the model of every level."""
    totals: dict[str, Sums] = {}
    asked, pieces = itertools.tee(pieces_of(experiment, state, statistics, round))
    for piece, found in zip(asked, server.engine.share(score_piece, pieces), strict=True):
        totals[piece.level.name] = added(totals.get(piece.level.name, {}), from_tensors(found))
    return totals


def pieces_of(experiment: Experiment, state: Tensors, statistics: dict[str, Tensors], round: int) -> Iterator[Piece]:
    """A piece of the test examples for every level, the largest networks first."""
    occasion, count = next(OCCASIONS), min(PIECES, len(experiment.test))
    for level in sorted(experiment.admitted(), key=lambda level: -level.ratio):
        payload = {**under(STATE, state), **under(STATISTICS, statistics[level.name])}
        for number in range(count):
            yield Piece(level, round, number, count, occasion, payload)


def own_sums(experiment: Experiment, server: Server, state: Tensors, round: int, ledger: Ledger) -> dict[str, Sums]:
    """What the test examples of clients add up to, each scored with the model of its client, by level."""
    ctx, totals = experiment.site.context(round), dict[str, Sums]()
    together = ([client] for client in scored_clients(experiment, round))
    for update in server.exchange(server.jobs("score", state, together, ctx), ctx, ledger):
        level = update.client.level.name
        totals[level] = added(totals.get(level, {}), from_tensors(update.payload))
    return totals


def scored_clients(experiment: Experiment, round: int) -> list[Client]:
    """The clients whose own models are scored: in every round the same, as far as their levels stay."""
    fleet, ctx = experiment.fleet, experiment.site.context(round)
    drawn = torch.randperm(len(fleet), generator=stream(fleet.seed, "scored clients"), dtype=torch.int32)
    chosen = drawn[: experiment.settings.task.scored_clients].sort().values
    per_cohort = fleet.assignment.per_cohort
    dealt = fleet.deal(len(chosen), round) if per_cohort else fleet.deal(len(fleet), round)[chosen]
    clients = [fleet.client(int(id), fleet.levels[int(at)]) for id, at in zip(chosen, dealt, strict=True)]
    return [client for client in clients if experiment.method.admits(client.level, ctx)]
