"""Where clients run: here one after the other, or in worker processes. No engine knows a method."""

from __future__ import annotations

from potluck.core.engine import Engine
from potluck.core.errors import ConfigError
from potluck.core.plug import unknown
from potluck.engines.local import Local
from potluck.engines.serial import Serial

ENGINES = ("local", "serial")


def make_engine(name: str, workers: int = 0) -> Engine:
    """The engine of this name; `workers` counts processes, 0 for one per core."""
    if name == "serial":
        return Serial()
    if name == "local":
        return Local(workers)
    raise ConfigError(unknown("engine", name, ENGINES))
