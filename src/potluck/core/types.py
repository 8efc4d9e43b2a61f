"""The nouns every layer shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

import torch
from annotated_types import Ge, Interval
from torch import Tensor, nn

from potluck.core.random import seeded, stream

Tensors = dict[str, Tensor]
"""The one currency: server state, payload, update and what stays on a client are all named tensors."""

Batch = tuple[Tensor, Tensor]
Loss = Callable[[nn.Module, Batch, Tensors], Tensor]
Made = TypeVar("Made")

Goal = Literal["classes", "next-token", "masked-tokens"]
"""What is predicted: the class of an input, the token after a sequence, or the tokens hidden in one."""

Ratio = Annotated[float, Interval(gt=0, le=1)]


@dataclass(frozen=True)
class Level:
    """A device class. What its ratio measures (width, rank, number of base networks) is the method's business."""

    name: str
    ratio: Ratio


@dataclass(frozen=True)
class Client:
    """What the server knows of a client: never its data."""

    id: int
    level: Level
    size: int
    labels: tuple[int, ...]
    turn: int | None = field(default=None, compare=False)  # clients asked to train before it; None: it is not to train


@dataclass(frozen=True)
class Train:
    """How every client trains. The defaults are HeteroFL's MNIST recipe."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: Annotated[float, Interval(gt=0, lt=math.inf)] = 0.01
    momentum: Annotated[float, Interval(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Ge(0)] = 5e-4
    clip: Annotated[float, Ge(0)] = 1.0  # bound on the gradient's global L2 norm; 0 leaves it alone
    epochs: Annotated[int, Ge(1)] = 5
    batch_size: Annotated[int, Ge(1)] = 10
    schedule: Literal["constant", "multistep", "cosine"] = "constant"
    milestones: tuple[int, ...] = ()  # rounds at which "multistep" multiplies the rate by `decay`
    decay: Annotated[float, Interval(gt=0, le=1)] = 0.1


@dataclass(frozen=True)
class Task:
    """All that is public: what is learned, by networks of which sizes, and how clients train them."""

    model: Callable[[float], nn.Module]  # from a ratio to a plain network
    levels: tuple[Level, ...]
    classes: int
    head: tuple[str, ...]  # the parameters that make the logits, one row per class
    example: Batch  # a made-up batch of one: the shapes and types of the data, none of their content
    train: Train = field(default_factory=Train)
    rounds: int = 1
    goal: Goal = "classes"
    embeddings: Mapping[str, int] = field(default_factory=dict)  # of tokens that are classes too, with their rows

    @property
    def largest(self) -> Level:
        """The level of the global network."""
        return max(self.levels, key=lambda level: level.ratio)


@dataclass(frozen=True)
class Context:
    """Where and when a verb is spoken: the task, the round, and the randomness that belongs to them."""

    task: Task
    round: int
    seed: int
    memo: dict[Hashable, object] = field(default_factory=dict, repr=False, compare=False)

    def rng(self, *key: object) -> torch.Generator:
        """A generator that depends on (seed, round, key), never on the order of calls."""
        return stream(self.seed, "round", self.round, *key)

    def build(self, ratio: float) -> nn.Module:
        """A fresh network of this size; the same seed gives the same initial weights anywhere."""
        with seeded(self.seed, "init"):
            return self.task.model(ratio)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` made the first time this process was asked for `key` (networks, plans)."""
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]  # type: ignore[return-value]


def everything(name: str) -> bool:
    """The default answer to which parameters a phase trains or decays."""
    return True


@dataclass(frozen=True)
class Phase:
    """One stretch of local training, as data, so that any engine can run it.

    A loss must not close over its client: what differs between clients goes into `extra`,
    or an engine that trains several clients at once would use one client's labels for all.
    """

    loss: Loss
    extra: Tensors = field(default_factory=dict)
    trains: Callable[[str], bool] = everything
    decays: Callable[[str], bool] = everything


@dataclass(frozen=True)
class Job:
    """What the server sends to a client."""

    client: Client
    round: int
    payload: Tensors
    bundle: int = 1  # so many jobs in a row, of which this is one, are for one place at once


@dataclass(frozen=True)
class Update:
    """What a client sends back; `failure` says why there is nothing to use."""

    client: Client
    payload: Tensors
    seconds: float = 0.0
    failure: str = ""
