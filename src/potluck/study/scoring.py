"""How good every level's model is: exported, calibrated by the clients where the method asks for it, scored.

Whoever runs clients also scores, since otherwise the workers would wait for it: the test examples are cut into pieces,
always the same, and every piece of every level is a job.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import nn

from potluck.core.client import Site
from potluck.core.engine import Engine
from potluck.core.evaluate import Score, Sums, added, means_of, sums_over
from potluck.core.server import Ledger, accept, issue
from potluck.core.types import Client, Job, Level, Task, Tensors
from potluck.parts.batchnorm import calibrate, combine, install, norms
from potluck.study.experiment import Experiment

MOST_EXAMPLES, MOST_LOGITS = 500, 1 << 22  # of a batch that is scored: texts have many logits per example
PIECES = 8  # of the test examples; more would mean more networks to set up, fewer workers that wait at the end
STATE, STATISTICS, OCCASION = "state/", "statistics/", "occasion"
OCCASIONS = itertools.count()  # tells one evaluation from another: a network serves all pieces of the same


@dataclass(frozen=True)
class Scored:
    """Scores by level name, what clients measured for each level's model, and what measuring it cost."""

    scores: dict[str, Score] = field(default_factory=dict)
    statistics: dict[str, Tensors] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)


def measured(
    experiment: Experiment, engine: Engine, state: Tensors, level: Level, round: int, ledger: Ledger
) -> Tensors:
    """The batch-norm statistics that a level's model needs, measured by the clients; nothing if it needs none."""
    method, ctx = experiment.method, experiment.site.context(round)
    if not method.calibrated or not ctx.once(("norms", level), lambda: bool(norms(method.export(state, level, ctx)))):
        return {}
    fleet = experiment.fleet
    asked = torch.randperm(len(fleet), generator=ctx.rng("calibration"), dtype=torch.int32)
    clients = [fleet.client(id, level) for id in sorted(asked[: experiment.calibration_clients].tolist())]
    del asked  # millions, perhaps
    answers = engine.map(calibrate, issue(method, state, clients, ctx, ledger))
    return combine(accept(answers, ledger, lambda update: None))


def ready_model(site: Site, state: Tensors, level: Level, round: int, statistics: Tensors) -> nn.Module:
    """The plain network of a level, with the statistics that were measured for it."""
    return install(site.method.export(state, level, site.context(round)), statistics)


def score_levels(experiment: Experiment, engine: Engine, state: Tensors, round: int) -> Scored:
    """Score every admitted level's model on the test examples."""
    scored, goal = Scored(), experiment.task.goal
    levels = experiment.admitted()
    for level in levels:
        scored.statistics[level.name] = measured(experiment, engine, state, level, round, scored.ledger)
    totals: dict[str, Sums] = {}
    for update in engine.map(score, pieces(experiment, state, scored.statistics, round)):
        level_name = update.client.level.name
        found = {name: (float(pair[0]), int(pair[1])) for name, pair in update.payload.items()}
        totals[level_name] = added(totals.get(level_name, {}), found)
    scored.scores.update((level.name, means_of(totals[level.name], goal)) for level in levels)
    return scored


def pieces(experiment: Experiment, state: Tensors, statistics: dict[str, Tensors], round: int) -> Iterator[Job]:
    """A job for every piece of the test examples and every level, the largest networks first."""
    occasion = torch.tensor(next(OCCASIONS))
    for level in sorted(experiment.admitted(), key=lambda level: -level.ratio):
        payload = {f"{STATE}{name}": tensor for name, tensor in state.items()}
        payload |= {f"{STATISTICS}{name}": tensor for name, tensor in statistics[level.name].items()}
        payload |= {OCCASION: occasion}
        for piece in range(min(PIECES, len(experiment.test))):
            yield Job(Client(-1 - piece, level, len(experiment.test), ()), round, payload)


def score(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """What one piece of the test examples adds to a level's score; nothing of it stays or belongs to a client."""
    assert site.test is not None
    level, task, occasion = job.client.level, site.task, int(job.payload[OCCASION])
    known, net = cast("tuple[object, nn.Module | None]", site.memo.get("scored", (None, None)))
    if net is None or known != (level, occasion):
        state, statistics = (
            {name.removeprefix(kind): t for name, t in job.payload.items() if name.startswith(kind)}
            for kind in (STATE, STATISTICS)
        )
        net = site.placed(ready_model(site, state, level, job.round, statistics))
        site.memo["scored"] = (level, occasion), net
    count, piece = len(site.test), -1 - job.client.id
    parts = min(PIECES, count)
    chosen = torch.arange(count * piece // parts, count * (piece + 1) // parts)
    sums = sums_over(net, site.test, chosen, task.goal, site.local, batch_size(task))
    return {name: torch.tensor([value, count], dtype=torch.float64) for name, (value, count) in sums.items()}, {}


def batch_size(task: Task) -> int:
    """How many examples are scored at a time."""
    return max(1, min(MOST_EXAMPLES, MOST_LOGITS // (task.classes * task.example[1].numel())))
