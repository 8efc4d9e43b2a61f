"""What ties the files of a run together: its checkpoint says which settings, metrics and other files belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from potluck.core.errors import ConfigError, RunError
from potluck.core.recipe import table_digest
from potluck.core.ways.step import Step, ways_of
from potluck.core.ways.way import PLAIN
from potluck.study.schema import Table

OLD = "it is damaged, or of another version of Potluck; restore it, or start over in another directory"


@dataclass(frozen=True)
class Seal:
    """What a checkpoint says beside the state."""

    run: str  # the identity of the run's settings
    rounds_done: int
    metrics_bytes: int
    metrics_sha256: str
    clients: int  # that have a file of what stays on them
    clients_digest: str

    @classmethod
    def of(cls, about: Mapping[str, Any], path: Path) -> Seal:
        """The seal in a checkpoint's words."""
        for field in fields(cls):
            value = about.get(field.name)
            if type(value).__name__ != field.type:
                raise RunError(f"{path} does not say its {field.name}: {OLD}")
        found = cls(**{field.name: about[field.name] for field in fields(cls)})
        if found.rounds_done < 1:
            raise RunError(f"{path} says that {found.rounds_done} rounds are done, but it should be 1 or more: {OLD}")
        if found.metrics_bytes < 1:
            raise RunError(f"{path} says that the metrics have {found.metrics_bytes} bytes, but there are some: {OLD}")
        return found


def section(config: Table, name: str) -> Table:
    """A section of a config; empty if there is none."""
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def identity(config: Table) -> str:
    """A digest of all that makes a run what it is: every setting but where clients run and the number of rounds."""
    fixed = {
        **config,
        "engine": {"step": ways_in(config)},
        "task": {**section(config, "task"), "rounds": None},
        "recipe": {**section(config, "recipe"), "run": None},
    }
    return table_digest(fixed)


def step_of(config: Table) -> Step:
    """How a config has clients trained."""
    step: Step = section(config, "engine").get("step", PLAIN)
    return step


def ways_in(config: Table) -> Any:
    """The way in which each level of a config is trained, whichever way that is written."""
    step, levels = step_of(config), section(section(config, "fleet"), "levels")
    try:
        return ways_of(step, levels) if levels else step
    except (ConfigError, TypeError):  # "counted" or "auto", or damaged
        return step
