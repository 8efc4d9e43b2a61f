"""What both rivals share: the two tasks, their networks, the reading of data, the command line and the line of results.

Nothing here is timed, and nothing here knows Potluck: the rivals live in an environment of their own.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

CLIENTS = 1000
EXAMPLES_PER_CLIENT = 50
CLIENTS_PER_ROUND = 50
BATCH = 10
LEARNING_RATES = {"lr": 0.03, "cnn": 0.1}
SHAPES = {"lr": (784,), "cnn": (3, 32, 32)}
SEED = 7


@dataclass(frozen=True)
class Data:
    """The examples: client i trains on 50 i .. 50 i + 49."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor

    def client(self, at: int) -> tuple[Tensor, Tensor]:
        """The inputs and labels of one client, as views."""
        own = slice(at * EXAMPLES_PER_CLIENT, (at + 1) * EXAMPLES_PER_CLIENT)
        return self.train_x[own], self.train_y[own]


@cache
def read_data(task: str, path: str) -> Data:
    """The task's examples; a process reads a file once."""
    if not Path(path).is_file():
        sys.exit(f"There is no data file {path}.")
    tensors = load_file(path)
    missing = {"train_x", "train_y", "test_x", "test_y"} - tensors.keys()
    if missing:
        sys.exit(f"{path} lacks {', '.join(sorted(missing))}.")
    shape, needed = tuple(tensors["train_x"].shape), (CLIENTS * EXAMPLES_PER_CLIENT, *SHAPES[task])
    if shape != needed:
        sys.exit(f"{path} holds train_x of shape {shape}; the task {task} needs {needed}.")
    return Data(tensors["train_x"], tensors["train_y"], tensors["test_x"], tensors["test_y"])


def network(task: str) -> nn.Sequential:
    """The task's network with its first weights, the same in every process."""
    torch.manual_seed(SEED)
    if task == "lr":
        return nn.Sequential(nn.Linear(784, 10))
    layers = nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(12544, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
    )
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return layers


@torch.no_grad()
def accuracy(net: nn.Module, data: Data) -> float:
    """The share of the test examples that the network gets right."""
    net.eval()
    batches = zip(data.test_x.split(500), data.test_y.split(500), strict=True)
    right = sum(int((net(x).argmax(1) == y).sum()) for x, y in batches)
    return right / len(data.test_y)


def arguments(description: str, processes: int, tutorial: bool = False) -> argparse.Namespace:
    """TASK --data FILE --rounds N [--processes P] [--tutorial, if there is such a form], checked."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("task", choices=sorted(SHAPES))
    parser.add_argument("--data", required=True, metavar="FILE.safetensors")
    parser.add_argument("--rounds", required=True, type=int)
    parser.add_argument("--processes", default=processes, type=int)
    if tutorial:
        parser.add_argument("--tutorial", action="store_true")
    asked = parser.parse_args()
    if asked.rounds < 1 or asked.processes < 1:
        sys.exit("--rounds and --processes must be 1 or more.")
    return asked


def report(rival: str, package: str, asked: argparse.Namespace, seconds: float, right: float) -> None:
    """The one line of JSON."""
    line = {
        "rival": rival,
        "version": version(package),
        "task": asked.task,
        "processes": asked.processes,
        "trainings": asked.rounds * CLIENTS_PER_ROUND,
        "seconds": seconds,
        "accuracy": right,
    }
    print(json.dumps(line), flush=True)
