"""Small runs of tasks of any kind: one set of inputs, and targets for each goal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import potluck
from potluck import methods

INPUTS = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
CLASSES = INPUTS[:, :3].argmax(1)
NUMBERS = 2 * INPUTS[:, 0] - INPUTS[:, 1]
ANSWERS = (INPUTS[:, 0] > 0).long()
LABELS = (INPUTS[:, :3] > 0).long()

KINDS: dict[str, tuple[int, Tensor]] = {
    "classes": (3, CLASSES),
    "binary": (1, ANSWERS),
    "multi-label": (3, LABELS),
    "regression": (1, NUMBERS),
    "own": (1, NUMBERS),
}
"""Of every kind of goal: how many outputs a network has, and the targets."""


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of one's own."""
    return (outputs.flatten() - targets.flatten()).square().mean()


def net(outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, outputs))


def run(**changes: Any) -> potluck.Result:
    """Two short rounds on three classes, unless something else is said."""
    settings: dict[str, Any] = {
        "model": net(),
        "data": (INPUTS, CLASSES),
        "levels": {"big": 1.0, "small": 0.25},
        "clients": 4,
        "rounds": 2,
        "method": "fedavg",
        "train": {"lr": 0.05, "epochs": 1},
        "engine": "serial",
        "watcher": None,
    }
    return potluck.run(**{**settings, **changes})


def of_kind(kind: str) -> dict[str, Any]:
    """A network, data and a task of a kind."""
    outputs, targets = KINDS[kind]
    said = {"loss": squared} if kind == "own" else {"task": kind}
    return {"model": net(outputs), "data": (INPUTS, targets), **said}


def with_method(name: str, **options: Any) -> dict[str, Any]:
    """A method, and settings with which it works on these networks."""
    needed = {"flanc": {"basis_size": 0.25}}.get(name, {})
    plain = {"momentum": 0, "clip": 0} if methods.find(name).steps_plainly else {}
    return {"method": {"name": name, **needed, **options}, "train": {"lr": 0.05, "epochs": 1, **plain}}


def shown(result: potluck.Result) -> list[str]:
    """What is measured of a level, in order."""
    return [name for name in result.metrics[-1]["levels"]["big"] if name != "clients"]
