"""What comes out of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from potluck.core.clock import Clock
from potluck.core.errors import ConfigError
from potluck.core.networks import unshare
from potluck.core.server import Server
from potluck.core.store import Store
from potluck.core.types import Tensors
from potluck.engines import make_engine
from potluck.parts.cost.level import LevelCost
from potluck.study.best import Best, best_round
from potluck.study.deployed import client_model, level_model
from potluck.study.experiment import Experiment
from potluck.study.files import as_path
from potluck.study.formats import write_model
from potluck.study.headline import accuracies, scores_in
from potluck.study.levels import level_of
from potluck.study.roster import client_number
from potluck.study.watchers import Record


@dataclass(frozen=True)
class Profile:
    """Where a run's time went."""

    seconds: Mapping[str, float]  # of this process, by what they were spent on
    total: float
    busy: float  # seconds that clients trained, of all places together
    places: int  # that clients can train in at once


@dataclass(frozen=True)
class Result:
    """What came out of a run."""

    state: Tensors  # the server's
    models: Mapping[str, nn.Module]  # a plain network per level; none if every client has its own
    metrics: list[Record]  # one record per round
    costs: list[LevelCost]
    profile: Profile
    directory: Path | None
    experiment: Experiment = field(repr=False)
    store: Store = field(repr=False)  # what stays on the clients

    @property
    def accuracy(self) -> dict[str, float | None]:
        """The accuracy of every level's model after the last round; None for a level that has none."""
        return accuracies(self.metrics[-1])

    @property
    def scores(self) -> dict[str, dict[str, float | None]]:
        """Every measure of every level's model after the last round."""
        return scores_in(self.metrics[-1])

    @property
    def best(self) -> Best:
        """The best round and every measure on the test examples that did not choose it.

        The others chose it, by the mean over the levels of the most telling measure.
        """
        return best_round(self.metrics)

    @property
    def names(self) -> tuple[str, ...]:
        """What the clients are called, in the order of their numbers; nothing if they have no names."""
        return self.experiment.names

    def export(self, level: str | float, out: str | Path | None = None) -> nn.Module:
        """The model for devices of this level, or of any ratio: a plain network in evaluation mode, yours to keep.

        With `out` it is also written to a file, in the format that its name asks for: .safetensors, .pt2 or .onnx.
        """
        if not self.models:
            some = repr(self.names[0]) if self.names else 7
            raise ConfigError(f"every client has a model of its own: export_client({some}) gives that of client {some}")
        if isinstance(level, str) and level not in self.models:
            raise ConfigError(f"there is no model for level '{level}'; there is one for {', '.join(self.models)}")
        net = self.models[level] if isinstance(level, str) else self.of_ratio(level)
        self.write(net, level if isinstance(level, str) else f"{level:g}", out)
        return net

    def of_ratio(self, ratio: float) -> nn.Module:
        """The model for devices of any ratio, made of what was learned."""
        experiment = self.experiment
        level = level_of(ratio, {each.name: each.ratio for each in experiment.task.levels})
        if not experiment.method.admits(level, experiment.site.context(0)):
            raise ConfigError(f"there is no model for ratio {ratio:g}: such devices do not take part")
        engine, clock = make_engine("serial"), Clock()
        engine.open(experiment.site, experiment.desk, self.store, clock)
        server = Server(experiment.recipe, engine, experiment.settings.guard, clock)
        return unshare(level_model(experiment, server, self.state, level, experiment.task.rounds - 1).net).eval()

    def export_client(self, client: int | str, out: str | Path | None = None) -> nn.Module:
        """The model that one client has, by its number or name, with what stayed on it; for methods whose models
        differ."""
        if self.models:
            raise ConfigError(f"clients of a level share a model: export('{next(iter(self.models))}') gives it")
        experiment, id = self.experiment, client_number(client, self.names, len(self.experiment.fleet))
        ctx = experiment.site.context(experiment.task.rounds - 1)
        found = client_model(experiment.recipe, experiment.fleet, self.state, self.store, id, ctx)
        named = {"name": self.names[id]} if self.names else {}
        self.write(found.net, found.level.name, out, client=id, **named)
        return found.net

    def write(self, net: nn.Module, level: str, out: str | Path | None, **owner: int | str) -> None:
        """Write a model to a file, if there is to be one."""
        if out is not None:
            about: Record = {"level": level, **owner, "rounds_done": self.experiment.task.rounds}
            write_model(as_path(out, "out"), net, self.experiment.task.example[0], about)
