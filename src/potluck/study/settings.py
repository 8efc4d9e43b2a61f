"""The settings of an experiment, section by section, whether they come from a file or from Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Len

from potluck.core.fleet import Assignment
from potluck.core.guard import Guard
from potluck.core.method import Method
from potluck.core.types import Ratio, Train
from potluck.core.ways.step import Step
from potluck.data.partitions import Partition

Named = str | dict[str, Any]
"""A thing by name, or a table with its `name` and its options."""


@dataclass(frozen=True)
class TaskSection:
    """What is learned and for how long."""

    model: Named
    rounds: Annotated[int, Ge(1)]
    evaluate_every: Annotated[int, Ge(1)] = 1
    calibration_clients: Annotated[int, Ge(1)] = 100  # at most this many measure batch-norm statistics
    scored_clients: Annotated[int, Ge(1)] = 100  # at most this many are scored, where each has a model of its own


@dataclass(frozen=True)
class DataSection:
    """Which data, and how they are divided over the clients."""

    source: Named
    partition: Named = "iid"
    test_examples: Annotated[int, Ge(1)] | None = None  # score on at most this many, evenly spaced; all if not given
    proxy: Named | None = None  # public examples that everybody has, for methods that train on such


@dataclass(frozen=True)
class FleetSection:
    """How many clients, of which levels, and how many take part in a round."""

    clients: Annotated[int, Ge(1)]
    levels: Annotated[dict[str, Ratio], Len(1)]
    assignment: Named = "fixed"
    cohort: Annotated[int, Ge(1)] | Ratio = 10  # a number of clients, or a share (0.1) of those able


@dataclass(frozen=True)
class EngineSection:
    """Where clients run."""

    name: str = "local"
    workers: Annotated[int, Ge(0)] = 0  # processes; 0 for one per core
    step: Step = "counted"  # how clients are trained: "counted" or "auto" choose a way; or a way, or one for each level
    device: str = "cpu"  # where networks are: "cpu" or "cuda"


@dataclass(frozen=True)
class Settings:
    """All that an experiment needs beside a network and data."""

    method: Method
    task: TaskSection
    fleet: FleetSection
    partition: Partition
    assignment: Assignment
    train: Train = field(default_factory=Train)
    engine: EngineSection = field(default_factory=EngineSection)
    guard: Guard = field(default_factory=Guard)
    seed: int = 0
