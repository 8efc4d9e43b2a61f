"""An experiment at less than full scale: fewer rounds, fewer clients or a narrower network.

The schedule keeps its shape.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from potluck.core.errors import ConfigError
from potluck.core.plug import is_path
from potluck.core.server import cohort_size
from potluck.data.assignment import assignment_named
from potluck.data.mix import shares_of
from potluck.models.catalogue import find_model
from potluck.study.config import name_and_options, name_of, options_of
from potluck.study.levels import make_levels
from potluck.study.schema import Table, shown
from potluck.study.settings import FleetSection

SHOULD = "a share above 0 and at most 1, such as 0.1, or shares by name, such as rounds=0.1,width=0.25"


@dataclass(frozen=True)
class Scale:
    """Which share of an experiment's rounds, clients and channels is kept."""

    rounds: float = 1.0
    clients: float = 1.0
    width: float = 1.0

    def __post_init__(self) -> None:
        for name, share in asdict(self).items():
            if not 0 < share <= 1:
                raise ConfigError(f"scale has {name} {share:g}, but it should be {SHOULD}")

    @classmethod
    def read(cls, text: str) -> Scale:
        """A scale from `0.1`, which cuts rounds, or from `rounds=0.1,clients=0.5,width=0.25`.

        >>> Scale.read("0.1"), Scale.read("rounds=0.5,width=0.25").width
        (Scale(rounds=0.1, clients=1.0, width=1.0), 0.25)
        """
        parts = [part.partition("=") for part in (text if "=" in text else f"rounds={text}").split(",")]
        known = [field.name for field in fields(cls)]
        try:
            shares = {name.strip(): float(share) for name, _, share in parts}
        except ValueError as error:
            raise ConfigError(f"scale is {shown(text)}, but it should be {SHOULD}") from error
        if len(shares) < len(parts):
            raise ConfigError(f"scale is {shown(text)}, which has a share twice")
        if not set(shares) <= set(known):
            raise ConfigError(f"scale is {shown(text)}, but it should be {SHOULD}; it can cut {', '.join(known)}")
        return cls(**shares)

    @property
    def cut(self) -> dict[str, float]:
        """What is cut, by name."""
        return {name: share for name, share in asdict(self).items() if share != 1}

    def __str__(self) -> str:
        return ",".join(f"{name}={share:g}" for name, share in self.cut.items())

    def applied(self, config: Mapping[str, Any]) -> Table:
        """The settings of an experiment at this scale."""
        table = {**config}
        if self.rounds != 1:
            table = fewer_rounds(table, self.rounds)
        if self.clients != 1:
            table = fewer_clients(table, self.clients)
        if self.width != 1:
            model = name_and_options(table["task"]["model"])
            table["task"] = {**table["task"], "model": {**model, "hidden": narrower(model, self.width)}}
        return table


def fewer_rounds(table: Table, share: float) -> Table:
    """A share of the rounds: milestones, warm-up and evaluations move with them."""
    task, train = {**table["task"]}, {**table.get("train", {})}
    before = task["rounds"]
    task["rounds"] = rounds = at_least_one(before * share)
    if "evaluate_every" in task:
        task["evaluate_every"] = at_least_one(task["evaluate_every"] * share)
    if train.get("milestones"):
        places = moved(train["milestones"], before, rounds)
        train["milestones"] = [places[milestone] for milestone in train["milestones"]]
    if isinstance(train.get("schedule"), list):
        train["schedule"] = [factor_at(train["schedule"], round * before // rounds) for round in range(rounds)]
    if train.get("warmup"):
        train["warmup"] = at_least_one(train["warmup"] * rounds / before)
    return {**table, "task": task, "train": train}


def moved(milestones: Sequence[int], before: int, rounds: int) -> dict[int, int]:
    """Where milestones are in a run of fewer rounds: those before the end stay there, and apart from each other."""
    different = sorted(set(milestones))
    inside = [milestone for milestone in different if milestone < before]
    if len(inside) >= rounds:
        raise ConfigError(
            f"scale leaves {rounds} of {before} rounds, but milestones at {', '.join(map(str, inside))} need at least "
            f"{len(inside) + 1}; keep more rounds"
        )
    places = {milestone: at_least_one(milestone * rounds / before) for milestone in different}
    for at, milestone in enumerate(inside):
        earliest = places[inside[at - 1]] + 1 if at else 1
        places[milestone] = min(max(places[milestone], earliest), rounds - len(inside) + at)
    return places


def factor_at(factors: Sequence[float], round: int) -> float:
    """The factor of a round; after the last one it stays the same."""
    return factors[min(round, len(factors) - 1)]


def fewer_clients(table: Table, share: float) -> Table:
    """A share of the clients, and of those that take part in a round; as many as there must be of them at least."""
    fleet = {**table["fleet"]}
    least = least_cohort(fleet)
    fleet["clients"] = clients = max(least, at_least_one(fleet["clients"] * share))
    cohort = fleet.get("cohort", FleetSection.cohort)
    if isinstance(cohort, int):
        fleet["cohort"] = max(least, at_least_one(cohort * share))
    elif cohort_size(cohort, clients) < least:
        fleet["cohort"] = least
    return {**table, "fleet": fleet}


def least_cohort(fleet: Table) -> int:
    """How many clients must take part in a round: one of each level, if all levels have to be there."""
    assignment = fleet.get("assignment", FleetSection.assignment)
    name = name_of(assignment)
    if is_path(name) or not assignment_named(name).per_cohort:
        return 1
    return int(shares_of(options_of(assignment).get("mix"), make_levels(fleet["levels"])).count_nonzero())


def narrower(model: Table, share: float) -> list[int]:
    """The channels of a network of ours, a share of what they were."""
    name = model["name"]
    usual = inspect.signature(find_model(name)).parameters.get("hidden")
    if usual is None:
        raise ConfigError(f"scale has width {share:g}, but {name} has no channels to choose (hidden); leave width out")
    return [at_least_one(channels * share) for channels in model.get("hidden", usual.default)]


def at_least_one(number: float) -> int:
    """A whole number close to this one, and at least one."""
    return max(1, round(number))
