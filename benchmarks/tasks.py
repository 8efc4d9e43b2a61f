"""The two federations that simulators are compared on: 1,000 clients of 50 examples, 50 of them a round, batches of 10.

`lr` is logistic regression on MNIST's shapes: nearly all of it is the simulator. `cnn` is pfl-research's CIFAR-10
benchmark: nearly all of it is training. The data are made up, of the right shapes and learnable; the time of training
does not depend on them. Where nobody trains, `shapes_alone` is enough: a network of the catalogue at some ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from potluck import Train
from potluck.core.data import Arrays, Holdings
from potluck.core.networks import ByWidth
from potluck.core.types import Level, Task
from potluck.data.dataset import Dataset
from potluck.models.catalogue import find_model, input_for

CLIENTS, EXAMPLES, COHORT, BATCH = 1000, 50, 50, 10


def shapes_alone(model: str, ratios: Iterable[float], train: Train | None = None) -> Task:
    """A network that Potluck brings along, at these ratios and for ten classes; there are no data."""
    levels = tuple(Level(f"{ratio:g}", ratio) for ratio in ratios)
    example = (torch.zeros(1, *input_for(model)), torch.zeros(1, dtype=torch.long))
    heads = {level.name: ("head.weight", "head.bias") for level in levels}
    return Task(ByWidth(find_model(model)), levels, 10, heads, example, train or Train())


def logistic_regression(width: float = 1.0) -> nn.Module:
    """7,850 parameters."""
    return nn.Sequential(nn.Linear(784, 10))


def pfl_cnn(width: float = 1.0) -> nn.Module:
    """pfl-research's network for CIFAR-10: 1,626,442 parameters at full width, 16.8 million MACs per image."""
    first, second, hidden = (max(1, round(size * width)) for size in (32, 64, 128))
    return nn.Sequential(
        nn.Conv2d(3, first, 3),
        nn.ReLU(),
        nn.Conv2d(first, second, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(second * 14 * 14, hidden),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(hidden, 10),
    )


@dataclass(frozen=True)
class Contest:
    """A federation to be run by everybody."""

    name: str
    title: str
    model: Callable[[float], nn.Module]
    shape: tuple[int, ...]
    lr: float
    rounds: int  # that are timed at once

    def train(self) -> Train:
        """How clients train."""
        return Train(lr=self.lr, momentum=0.0, weight_decay=0.0, clip=0.0, epochs=1, batch_size=BATCH)

    @cache  # noqa: B019
    def tensors(self) -> dict[str, Tensor]:
        """Standardised inputs, ten classes around ten centres."""
        rng = torch.Generator().manual_seed(0)
        centres = torch.randn(10, *self.shape, generator=rng)
        found: dict[str, Tensor] = {}
        for part, count in (("train", CLIENTS * EXAMPLES), ("test", 2000)):
            labels = torch.randint(10, (count,), generator=rng)
            inputs = torch.randn(count, *self.shape, generator=rng).add_(centres[labels], alpha=0.3)
            found |= {f"{part}_x": inputs, f"{part}_y": labels}
        return found

    def dataset(self) -> Dataset:
        """The same as Potluck's."""
        tensors = self.tensors()
        train, test = (Arrays(tensors[f"{part}_x"], tensors[f"{part}_y"]) for part in ("train", "test"))
        return Dataset(train, test, classes=10)

    def write(self, folder: Path) -> Path:
        """The same in a file, for simulators that live elsewhere."""
        path = folder / f"{self.name}.safetensors"
        save_file(self.tensors(), path)
        return path


CONTESTS = {
    "lr": Contest("lr", "logistic regression, MNIST's shapes", logistic_regression, (784,), 0.03, 40),
    "cnn": Contest("cnn", "pfl's CIFAR-10 network", pfl_cnn, (3, 32, 32), 0.1, 3),
}


@dataclass(frozen=True)
class InOrder:
    """A partition: client i holds the i-th 50 examples."""

    def __call__(self, targets: Tensor, clients: int, rng: torch.Generator, owners: Tensor | None = None) -> Holdings:
        return Holdings(torch.arange(clients * EXAMPLES), torch.arange(clients + 1) * EXAMPLES)
