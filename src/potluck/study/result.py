"""What comes out of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from potluck.core.errors import ConfigError
from potluck.core.store import Store
from potluck.core.types import Tensors
from potluck.parts.cost.level import LevelCost
from potluck.study.deployed import client_model
from potluck.study.experiment import Experiment
from potluck.study.formats import write_model
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
        return {level: found["accuracy"] for level, found in self.metrics[-1]["levels"].items()}

    def export(self, level: str, out: str | Path | None = None) -> nn.Module:
        """The model for devices of this level: a plain network in evaluation mode, yours to keep.

        With `out` it is also written to a file, in the format that its name asks for: .safetensors, .pt2 or .onnx.
        """
        if not self.models:
            raise ConfigError("every client has a model of its own: export_client(7) gives that of client 7")
        if level not in self.models:
            raise ConfigError(f"there is no model for level '{level}'; there is one for {', '.join(self.models)}")
        self.write(self.models[level], level, out)
        return self.models[level]

    def export_client(self, client: int, out: str | Path | None = None) -> nn.Module:
        """The model that one client has, with what stayed on it; for methods whose models differ."""
        if self.models:
            raise ConfigError(f"clients of a level share a model: export('{next(iter(self.models))}') gives it")
        last = self.experiment.task.rounds - 1
        found = client_model(self.experiment, self.state, self.store, client, last)
        self.write(found.net, found.level.name, out, client=client)
        return found.net

    def write(self, net: nn.Module, level: str, out: str | Path | None, **owner: int) -> None:
        """Write a model to a file, if there is to be one."""
        if out is not None:
            about: Record = {"level": level, **owner, "rounds_done": self.experiment.task.rounds}
            write_model(Path(out), net, self.experiment.task.example[0], about)
