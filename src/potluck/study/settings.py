"""The settings of an experiment, section by section, whether they come from a file or from Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Interval

from potluck.core.fleet import Assignment
from potluck.core.goals.goal import Goal
from potluck.core.guard import Guard
from potluck.core.method import Method
from potluck.core.ranges import Count, Should
from potluck.core.types import Ratio, Train
from potluck.core.ways.step import Step
from potluck.data.partitions import Partition
from potluck.study.levels import make_levels

Named = str | dict[str, Any]
"""A thing by name, or a table with its `name` and its options."""

MOST_CLIENTS = 10**8  # each takes some bytes of memory, also if it never takes part
MOST_WORKERS = 512

Cohort = Annotated[
    Count | Annotated[float, Interval(ge=1e-9, le=1)],
    Should("a whole number of clients (10) or a share up to 1 (0.1)"),
]
"""Who takes part in a round. A smaller share would be nobody, since clients are counted to nine digits."""


Share = Annotated[float, Interval(ge=0, lt=1)]


@dataclass(frozen=True)
class Seeded:
    """What all random numbers come from."""

    seed: Annotated[int, Interval(ge=0, lt=2**63)] = 0  # whole numbers in TOML have 64 bits


@dataclass(frozen=True)
class Choosing:
    """What chooses the best round."""

    validation: Share = 0.0


@dataclass(frozen=True)
class TaskSection:
    """What is learned and for how long."""

    model: Named
    rounds: Count
    evaluate_every: Count = 1
    calibration_clients: Count = 100  # at most this many measure batch-norm statistics
    scored_clients: Count = 100  # at most this many are scored, where each has a model of its own
    goal: str | None = None  # what is learned, such as "regression"; what the data set says if not given
    loss: str | None = None  # a loss of one's own, as package.module:function
    metrics: tuple[str, ...] | None = None  # what models are scored by; what is usual for the goal if not given


@dataclass(frozen=True)
class DataSection:
    """Which data, and how they are divided over the clients."""

    source: Named
    partition: Named = "iid"
    test_examples: Count | None = None  # score on at most this many, evenly spaced; all if not given
    proxy: Named | None = None  # public examples that everybody has, for methods that train on such
    validation: Share = 0.0  # of the test examples, those that choose the best round


@dataclass(frozen=True)
class FleetSection:
    """How many clients, of which levels, and how many take part in a round."""

    clients: Annotated[int, Interval(ge=1, le=MOST_CLIENTS)]
    levels: dict[str, Ratio]
    assignment: Named = "fixed"
    cohort: Cohort = 10  # a number of clients, or a share (0.1) of those able

    def __post_init__(self) -> None:
        make_levels(self.levels)  # refuses names that files cannot have


@dataclass(frozen=True)
class EngineSection:
    """Where clients run."""

    name: str = "local"
    workers: Annotated[int, Interval(ge=0, le=MOST_WORKERS)] = 0  # processes; 0 for one per core
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
    goal: Goal | None = None  # what is learned, if the user says so and not the data set
    metrics: Mapping[str, Any] | None = None  # what else is measured; what is usual for the goal if not given
    validation: float = 0.0  # the share of test examples that choose the best round
