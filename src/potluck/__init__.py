"""Potluck: federated learning in which every device brings what it can."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from potluck import goals as goals
    from potluck.core.data import Arrays as Arrays
    from potluck.core.data import Examples as Examples
    from potluck.core.errors import PotluckError as PotluckError
    from potluck.core.guard import Guard as Guard
    from potluck.core.method import Method as Method
    from potluck.core.types import Client as Client
    from potluck.core.types import Context as Context
    from potluck.core.types import Job as Job
    from potluck.core.types import Level as Level
    from potluck.core.types import Phase as Phase
    from potluck.core.types import Tensors as Tensors
    from potluck.core.types import Train as Train
    from potluck.core.types import Update as Update
    from potluck.data.dataset import Dataset as Dataset
    from potluck.data.own import examples as examples
    from potluck.parts.shrink.shrinkable import Shrinkable as Shrinkable
    from potluck.study.api import run as run
    from potluck.study.costs import costs as costs
    from potluck.study.plan import plan as plan
    from potluck.study.recorded import load as load
    from potluck.study.result import Result as Result
    from potluck.study.watchers import Watcher as Watcher

_PLACES = {
    "Arrays": "core.data",
    "Client": "core.types",
    "Context": "core.types",
    "Dataset": "data.dataset",
    "Examples": "core.data",
    "Guard": "core.guard",
    "Job": "core.types",
    "Level": "core.types",
    "Method": "core.method",
    "Phase": "core.types",
    "PotluckError": "core.errors",
    "Result": "study.result",
    "Shrinkable": "parts.shrink.shrinkable",
    "Tensors": "core.types",
    "Train": "core.types",
    "Update": "core.types",
    "Watcher": "study.watchers",
    "costs": "study.costs",
    "examples": "data.own",
    "load": "study.recorded",
    "plan": "study.plan",
    "run": "study.api",
}

__all__ = [*_PLACES, "goals"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: a worker needs few of them, and starts sooner."""
    if name == "goals":
        return import_module("potluck.goals")
    if name not in _PLACES:
        raise AttributeError(f"module 'potluck' has no attribute '{name}'")
    found: object = getattr(import_module(f"potluck.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
