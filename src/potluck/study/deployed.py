"""Models to take away: of a level, or of a client that has one of its own."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from potluck.core.copying import copied
from potluck.core.desk import ready_model
from potluck.core.errors import ConfigError
from potluck.core.fleet import Fleet
from potluck.core.recipe import Recipe
from potluck.core.server import Ledger, Server
from potluck.core.store import Store
from potluck.core.types import Context, Job, Level, Tensors
from potluck.study.experiment import Experiment
from potluck.study.scoring import measured


@dataclass(frozen=True)
class Deployed:
    """A plain network in evaluation mode, and whose it is."""

    net: nn.Module
    level: Level


def level_model(experiment: Experiment, server: Server, state: Tensors, level: Level, round: int) -> Deployed:
    """The model that all devices of a level share."""
    statistics = measured(experiment, server, state, level, round, Ledger())
    return Deployed(ready_model(experiment.recipe, state, level, round, statistics, experiment.site.memo), level)


def client_model(recipe: Recipe, fleet: Fleet, state: Tensors, store: Store, id: int, ctx: Context) -> Deployed:
    """The model that one client has, with what stayed on it."""
    if not 0 <= id < len(fleet):
        raise ConfigError(f"there is no client {id}; they are numbered from 0 to {len(fleet) - 1}")
    dealt = fleet.deal(1, ctx.round)[0] if fleet.assignment.per_cohort else fleet.deal(len(fleet), ctx.round)[id]
    client, method = fleet.client(id, fleet.levels[int(dealt)]), recipe.method
    if not method.admits(client.level, ctx):
        raise ConfigError(f"client {id} is of level '{client.level.name}', which does not take part: it has no model")
    job = Job(client, ctx.round, method.distribute(state, client, ctx), "score", recipe.run)
    return Deployed(copied(method.localize(job, ctx, store.get(id))).eval(), client.level)
