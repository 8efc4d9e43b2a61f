"""A federation that is learned in a second: four clouds of points, eight clients, four sizes."""

from __future__ import annotations

import torch
from torch import nn

from potluck.core.client import Site
from potluck.core.data import Arrays, Holdings
from potluck.core.fleet import Fleet
from potluck.core.method import Method
from potluck.core.server import Ledger, draw_cohort, issue, play_round
from potluck.core.types import Level, Task, Tensors, Train
from potluck.data.assignment import Blocks
from potluck.engines.serial import Serial
from potluck.parts.batchnorm import calibrate, combine, install
from whole import evaluate

CLOUDS, CLIENTS, ROUNDS = 4, 8, 12
FLEET_LEVELS = (Level("full", 1.0), Level("half", 0.5), Level("quarter", 0.25), Level("eighth", 0.125))


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


def federation(method: Method, rounds: int = ROUNDS, seed: int = 0) -> tuple[Site, Fleet]:
    """Eight clients, two of each level, each without one of the four classes."""
    examples = clouds(320, seed=0)
    lacking = [(examples.targets != id % CLOUDS).nonzero().flatten()[id::CLIENTS] for id in range(CLIENTS)]
    holdings = Holdings.of_lists(lacking)
    example = (torch.zeros(1, 8), torch.zeros(1, dtype=torch.long))
    settings = Train(lr=0.05, epochs=2, batch_size=10)
    task = Task(Layers, FLEET_LEVELS, CLOUDS, ("5.weight", "5.bias"), example, settings, rounds)
    return Site(method, task, seed, examples, holdings), Fleet(FLEET_LEVELS, Blocks(), holdings, examples, seed)


def usable(method: Method, state: Tensors, level: Level, site: Site, fleet: Fleet, engine: Serial) -> nn.Module:
    """A level's network, with the statistics that all clients measured for it if it needs them."""
    ctx = site.context(site.task.rounds - 1)
    net = method.export(state, level, ctx)
    if not method.calibrated:
        return net
    asked = [fleet.client(id, level) for id in range(len(fleet))]
    return install(net, combine(engine.map(calibrate, issue(method, state, asked, ctx, Ledger()))))


def learned(method: Method, rounds: int = ROUNDS, seed: int = 0) -> dict[str, float]:
    """The accuracy of every level's network after some rounds with everybody."""
    engine, test = Serial(), clouds(400, seed=1)
    site, fleet = federation(method, rounds, seed)
    engine.open(site)
    macs = {level.name: int(64 * level.ratio) for level in FLEET_LEVELS}
    state = method.init(site.context(0))
    for round in range(rounds):
        ctx = site.context(round)
        state, ledger = play_round(method, state, draw_cohort(method, fleet, 1.0, macs, ctx), engine, ctx, macs)
        assert not ledger.failures
    models = {level.name: usable(method, state, level, site, fleet, engine) for level in FLEET_LEVELS}
    return {name: evaluate(net, test)["accuracy"] for name, net in models.items()}
