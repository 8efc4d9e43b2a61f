"""A federation that is learned in a second: four clouds of points, eight clients, four sizes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import nn

from potluck.core.calibration import combine, install
from potluck.core.client import Site
from potluck.core.clock import Clock
from potluck.core.data import Arrays, Holdings, Pool
from potluck.core.desk import Desk
from potluck.core.fleet import Fleet
from potluck.core.method import Method
from potluck.core.networks import ByWidth
from potluck.core.recipe import Recipe
from potluck.core.server import Ledger, Server, draw_cohort, first_state
from potluck.core.store import Memory
from potluck.core.types import Batch, Level, Task, Tensors, Train
from potluck.data.assignment import Blocks
from potluck.engines.serial import Serial
from whole import evaluate

CLOUDS, CLIENTS, ROUNDS = 4, 8, 12
FLEET_LEVELS = (Level("full", 1.0), Level("half", 0.5), Level("quarter", 0.25), Level("eighth", 0.125))


MACS = {level.name: int(64 * level.ratio) for level in FLEET_LEVELS}


def heads(levels: Iterable[Level], names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The same head at every level, as sizes of one network have it."""
    return {level.name: names for level in levels}


def clouds(count: int, seed: int) -> Arrays:
    """Four clouds in eight dimensions; the nearest centre is the right one for about 95 of 100 points."""
    rng = torch.Generator().manual_seed(seed)
    targets = torch.arange(count) % CLOUDS
    return Arrays(3.0 * torch.eye(CLOUDS, 8)[targets] + torch.randn(count, 8, generator=rng), targets)


class Layers(nn.Sequential):
    def __init__(self, width: float) -> None:
        hidden = round(64 * width)
        super().__init__(
            nn.Linear(8, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 4),
        )


def federation(
    method: Method, rounds: int = ROUNDS, seed: int = 0, levels: tuple[Level, ...] = FLEET_LEVELS
) -> tuple[Site, Fleet]:
    """Eight clients, two of each level, each without one of the four classes."""
    examples = clouds(320, seed=0)
    lacking = [(examples.targets != id % CLOUDS).nonzero().flatten()[id::CLIENTS] for id in range(CLIENTS)]
    pool = Pool(examples, Holdings.of_lists(lacking))
    example = (torch.zeros(1, 8), torch.zeros(1, dtype=torch.long))
    settings = Train(lr=0.05, epochs=2, batch_size=10)
    if method.steps_plainly:
        settings = replace(settings, lr=0.2, momentum=0.0, clip=0.0)
    head = heads(levels, ("5.weight", "5.bias"))
    task = Task(ByWidth(Layers), levels, CLOUDS, head, example, settings, rounds, clients=CLIENTS)
    return Site(Recipe(method, task, seed), pool), Fleet(levels, Blocks(), pool, seed)


def everything(site: Site) -> Batch:
    """The examples of all clients."""
    assert isinstance(site.holder, Pool)
    return site.holder.train.take(torch.arange(len(site.holder.train)))


def serving(site: Site) -> Server:
    """A server whose clients run here, one after the other."""
    engine, clock = Serial(), Clock()
    engine.open(site, Desk(site.recipe, clouds(400, seed=1)), Memory(), clock)
    return Server(site.recipe, engine, clock=clock, macs=MACS)


def usable(state: Tensors, level: Level, site: Site, fleet: Fleet, server: Server) -> nn.Module:
    """A level's network, with the statistics that all clients measured for it if it needs them."""
    ctx, ledger = site.context(site.task.rounds - 1), Ledger()
    net = site.method.export(state, level, ctx)
    if not site.method.calibrated:
        return net
    asked = [[fleet.client(id, level)] for id in range(len(fleet))]
    net = install(net, combine(server.exchange(server.jobs("calibrate", state, asked, ctx), ctx, ledger)))
    assert not ledger.failures
    return net


def learned(
    method: Method, rounds: int = ROUNDS, seed: int = 0, levels: tuple[Level, ...] = FLEET_LEVELS
) -> dict[str, float]:
    """The accuracy of every level's network after some rounds with everybody."""
    site, fleet = federation(method, rounds, seed, levels)
    server, test = serving(site), clouds(400, seed=1)
    state = first_state(method, site.context(0))
    for round in range(rounds):
        ctx = site.context(round)
        state, ledger = server.play(state, draw_cohort(method, fleet, 1.0, MACS, ctx), ctx)
        assert not ledger.failures
    models = {level.name: usable(state, level, site, fleet, server) for level in levels}
    return {name: evaluate(net, test)["accuracy"] for name, net in models.items()}
