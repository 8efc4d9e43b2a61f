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
from potluck.core.evaluate import added, score_of
from potluck.core.goals.goal import Score
from potluck.core.names import under
from potluck.core.random import stream
from potluck.core.server import Ledger, Server
from potluck.core.types import Client, Context, Level, Task, Tensors
from potluck.study.experiment import Experiment

PIECES = 8  # of the test examples; more would mean more networks to set up, fewer workers that wait at the end
OCCASIONS = itertools.count()  # tells one evaluation from another: a network serves all pieces of the same


@dataclass(frozen=True)
class Scored:
    """Scores by level name, what clients measured for each level's model, and what asking them cost."""

    scores: dict[str, Score] = field(default_factory=dict)
    validation: dict[str, Score] = field(default_factory=dict)  # on the examples that choose the best round
    rest: dict[str, Score] = field(default_factory=dict)  # on all the others, if some choose
    statistics: dict[str, Tensors] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)


def score_levels(experiment: Experiment, server: Server, state: Tensors, round: int) -> Scored:
    """Score every admitted level's model, or the models of its clients."""
    scored = Scored()
    if experiment.method.shares_model:
        for level in experiment.admitted():
            scored.statistics[level.name] = measured(experiment, server, state, level, round, scored.ledger)
        rest, chosen = shared_sums(experiment, server, state, scored.statistics, round)
        scored.scores.update(scores(together(rest, chosen, experiment.task), experiment.task))
        if chosen:
            scored.validation.update(scores(chosen, experiment.task))
            scored.rest.update(scores(rest, experiment.task))
    else:
        totals = own_sums(experiment, server, state, round, scored.ledger)
        scored.scores.update(scores(totals, experiment.task))
    return scored


def scores(totals: dict[str, Tensors], task: Task) -> dict[str, Score]:
    """The scores that tallies add up to, by level."""
    return {level: score_of(tally, task) for level, tally in totals.items()}


def together(one: dict[str, Tensors], other: dict[str, Tensors], task: Task) -> dict[str, Tensors]:
    """Tallies of two parts of the test examples, by level."""
    return {level: added(one.get(level, {}), other.get(level, {}), task) for level in one}


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
) -> tuple[dict[str, Tensors], dict[str, Tensors]]:
    """What the test examples add up to for the model of every level: those that choose the best round come last."""
    rest: dict[str, Tensors] = {}
    chosen: dict[str, Tensors] = {}
    asked, pieces = itertools.tee(pieces_of(experiment, state, statistics, round))
    for piece, found in zip(asked, server.engine.share(score_piece, pieces), strict=True):
        totals = chosen if piece.choosing else rest
        totals[piece.level.name] = added(totals.get(piece.level.name, {}), found, experiment.task)
    return rest, chosen


def pieces_of(experiment: Experiment, state: Tensors, statistics: dict[str, Tensors], round: int) -> Iterator[Piece]:
    """A piece of the test examples for every level, the largest networks first."""
    occasion, parts = next(OCCASIONS), pieces_by_part(experiment)
    for level in sorted(experiment.admitted(), key=lambda level: -level.ratio):
        payload = {**under(STATE, state), **under(STATISTICS, statistics[level.name])}
        for choosing, count in parts.items():
            for number in range(count):
                yield Piece(level, round, number, count, occasion, payload, choosing)


def pieces_by_part(experiment: Experiment) -> dict[bool, int]:
    """How many pieces the test examples are cut into: those that choose the best round (True), and all the others."""
    counts = {choosing: len(experiment.desk.examples(choosing)) for choosing in (False, True)}
    total = sum(counts.values())
    return {part: max(1, min(count, PIECES * count // total)) for part, count in counts.items() if count}


def own_sums(experiment: Experiment, server: Server, state: Tensors, round: int, ledger: Ledger) -> dict[str, Tensors]:
    """What the test examples of clients add up to, each scored with the model of its client, by level."""
    ctx, totals = experiment.site.context(round), dict[str, Tensors]()
    together = ([client] for client in scored_clients(experiment, round))
    for update in server.exchange(server.jobs("score", state, together, ctx), ctx, ledger):
        level = update.client.level.name
        totals[level] = added(totals.get(level, {}), update.payload, experiment.task)
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
