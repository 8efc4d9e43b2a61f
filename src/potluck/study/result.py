"""What comes out of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from potluck.core.errors import ConfigError
from potluck.core.types import Tensors
from potluck.parts.cost.level import LevelCost
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
    models: Mapping[str, nn.Module]  # a plain network per level
    metrics: list[Record]  # one record per round
    costs: list[LevelCost]
    profile: Profile
    directory: Path | None = None

    @property
    def accuracy(self) -> dict[str, float]:
        """The accuracy of every level's model after the last round."""
        return {level: found["accuracy"] for level, found in self.metrics[-1]["levels"].items()}

    def export(self, level: str) -> nn.Module:
        """The model for devices of this level: a plain network in evaluation mode, yours to keep."""
        if level not in self.models:
            raise ConfigError(f"there is no model for level '{level}'; there is one for {', '.join(self.models)}")
        return self.models[level]
