"""How good every level's model is: exported, calibrated by the clients where the method asks for it, scored."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from potluck.core.engine import Engine
from potluck.core.evaluate import Score, evaluate
from potluck.core.server import Ledger, accept, issue
from potluck.core.threads import one_thread
from potluck.core.types import Level, Tensors
from potluck.parts.batchnorm import calibrate, combine, install, norms
from potluck.study.experiment import Experiment

MOST_EXAMPLES, MOST_LOGITS = 500, 1 << 22  # of a batch that is scored: texts have many logits per example


@dataclass(frozen=True)
class Scored:
    """Scores and models by level name, and what measuring batch-norm statistics cost."""

    scores: dict[str, Score] = field(default_factory=dict)
    models: dict[str, nn.Module] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)


def ready_model(
    experiment: Experiment, engine: Engine, state: Tensors, level: Level, round: int, ledger: Ledger
) -> nn.Module:
    """The plain network of a level, with statistics measured by the clients if it needs them."""
    ctx = experiment.site.context(round)
    net = experiment.method.export(state, level, ctx)
    if experiment.method.calibrated and norms(net):
        fleet = experiment.fleet
        asked = torch.randperm(len(fleet), generator=ctx.rng("calibration"))[: experiment.calibration_clients]
        clients = [fleet.client(id, level) for id in sorted(asked.tolist())]
        answers = engine.map(calibrate, issue(experiment.method, state, clients, ctx, ledger))
        install(net, combine(accept(answers, ledger, lambda update: None)))
    return net


def score_levels(experiment: Experiment, engine: Engine, state: Tensors, round: int) -> Scored:
    """Score every admitted level's model on the test examples."""
    scored, task = Scored(), experiment.task
    batch_size = max(1, min(MOST_EXAMPLES, MOST_LOGITS // (task.classes * task.example[1].numel())))
    for level in experiment.admitted():
        net = ready_model(experiment, engine, state, level, round, scored.ledger)
        scored.models[level.name] = net
        with one_thread():
            scored.scores[level.name] = evaluate(net, experiment.test, task.goal, experiment.local, batch_size)
    return scored
