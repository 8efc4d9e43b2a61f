"""Potluck: federated learning in which every device brings what it can."""

__version__ = "0.1.0.dev0"

from potluck.core.data import Arrays, Examples
from potluck.core.errors import PotluckError
from potluck.core.method import Method
from potluck.core.types import Client, Context, Job, Level, Phase, Tensors, Train, Update
from potluck.data.dataset import Dataset
from potluck.parts.shrink.shrinkable import Shrinkable
from potluck.study.api import run
from potluck.study.costs import costs
from potluck.study.plan import plan
from potluck.study.result import Result

__all__ = [
    "Arrays",
    "Client",
    "Context",
    "Dataset",
    "Examples",
    "Job",
    "Level",
    "Method",
    "Phase",
    "PotluckError",
    "Result",
    "Shrinkable",
    "Tensors",
    "Train",
    "Update",
    "costs",
    "plan",
    "run",
]
