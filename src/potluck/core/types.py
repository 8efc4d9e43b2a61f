"""The nouns every layer shares."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import torch
from annotated_types import Interval, MinLen
from torch import Tensor, nn

from potluck.core.goals.classes import Classes
from potluck.core.goals.goal import Goal
from potluck.core.inputs import Inputs
from potluck.core.memo import Memo
from potluck.core.networks import Networks, share_frozen
from potluck.core.optimizers import Rule, rule_of
from potluck.core.random import seeded, stream
from potluck.core.ranges import LARGEST, Count, Factor, Index, Should

if TYPE_CHECKING:
    from potluck.core.data import Examples
    from potluck.core.measures import Measure

Tensors = dict[str, Tensor]
"""The one currency: server state, payload, update and what stays on a client are all named tensors."""

Batch = tuple[Inputs, Any]
"""What a network is given, and what it should say."""

Loss = Callable[[nn.Module, Batch, Tensors], Tensor]
Made = TypeVar("Made")

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
    turn: int | None = field(default=None, compare=False)  # requests to train before this one; None if it only receives


Factors = Annotated[tuple[Factor, ...], MinLen(1)]
Schedule = Annotated[
    Literal["constant", "multistep", "cosine", "linear", "exponential"] | Factors | Callable[[int], float],
    Should(
        "'constant', 'multistep', 'cosine', 'linear', 'exponential', or a list of factors from 0 to 1e30, one for "
        "each round"
    ),
]
"""How the rate changes from round to round: by name, or by the factors that it is multiplied with."""


@dataclass(frozen=True)
class Train:
    """How every client trains. The defaults are HeteroFL's MNIST recipe."""

    optimizer: str | Mapping[str, Any] | Rule | Callable[..., torch.optim.Optimizer] = "sgd"
    lr: Annotated[float, Interval(gt=0, le=LARGEST), Should("a finite number above 0, at most 1e30")] = 0.01
    momentum: Annotated[float, Interval(ge=0, lt=1)] | None = None  # if not given, 0.9 for SGD, else the class's own
    weight_decay: Factor = 5e-4
    clip: Factor = 1.0  # bound on the gradient's global L2 norm; 0 leaves it alone
    epochs: Count = 5
    batch_size: Count = 10
    accumulate: Count = 1  # batches whose gradients make one step
    precision: Literal["float32", "bfloat16"] = "float32"  # that a network computes in while it trains
    schedule: Schedule = "constant"
    milestones: tuple[Index, ...] = ()  # rounds at which "multistep" multiplies the rate by `decay`
    decay: Annotated[float, Interval(gt=0, le=1)] = 0.1
    warmup: Index = 0  # rounds in which the rate rises to what it should be

    @cached_property
    def rule(self) -> Rule:
        """What `optimizer` means."""
        return rule_of(self.optimizer)


@dataclass(frozen=True)
class Task:
    """All that is public: what is learned, by which networks, and how clients train them."""

    model: Networks  # from a level to its plain network
    levels: tuple[Level, ...]
    classes: int  # that a network chooses among; 0 if its goal is another
    heads: Mapping[str, tuple[str, ...]]  # by level: the parameters that make the outputs, one row per class or number
    example: Batch  # a made-up batch of one: the shapes and types of the data, none of their content
    train: Train = field(default_factory=Train)
    rounds: int = 1
    goal: Goal = field(default_factory=Classes)
    measures: Mapping[str, Measure] = field(default_factory=dict)  # what else a model is scored by
    embeddings: Mapping[str, int] = field(default_factory=dict)  # of tokens that are classes too, with their rows
    proxy: Examples | None = None  # public examples that everybody has
    clients: int = 0  # of the whole fleet

    @property
    def largest(self) -> Level:
        """The level of the global network."""
        return max(self.levels, key=lambda level: level.ratio)

    def head(self, level: Level) -> tuple[str, ...]:
        """The parameters that make a level's logits; at a width that no level has they are called the same."""
        return self.heads[level.name if level.name in self.heads else self.largest.name]


@dataclass(frozen=True)
class Context:
    """Where and when a verb is spoken: the task, the round, and the randomness that belongs to them."""

    task: Task
    round: int
    seed: int
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)

    def rng(self, *key: object) -> torch.Generator:
        """A generator that depends on (seed, round, key), never on the order of calls."""
        return stream(self.seed, "round", self.round, *key)

    def build(self, level: Level) -> nn.Module:
        """A fresh network of a level; the same seed gives the same initial weights anywhere.

        Frozen parameters that are equal are one object in all networks of a process.
        """
        with seeded(self.seed, "init"):
            net = self.task.model(level)
        return net if self.memo.frozen is None else share_frozen(net, self.memo.frozen)

    def once(self, make: Callable[..., Made], *args: Hashable) -> Made:
        """`make(*args, ctx)`, made once in this process. It depends on nothing else, so its context is that of round 0.

        >>> ctx = Context(None, round=7, seed=0)  # type: ignore[arg-type]
        >>> ctx.once(lambda level, ctx: (level, ctx.round), "phone")
        ('phone', 0)
        """
        key = (make, *args)
        if key not in self.memo.made:
            self.memo.keep(key, make(*args, replace(self, round=0)))
        found: Made = self.memo.made[key]
        return found


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
    source: Literal["private", "proxy"] = "private"  # the client's own examples, or the public ones
    train: Train | None = None  # settings of its own; the task's if not given


@dataclass(frozen=True)
class Job:
    """What the server sends to a client."""

    client: Client
    round: int
    payload: Tensors
    work: str = "train"  # what is asked for
    run: str = ""  # the digest of the recipe that both sides must have


@dataclass(frozen=True)
class Update:
    """What a client sends back; `failure` says why there is nothing to use."""

    client: Client
    payload: Tensors
    seconds: float = 0.0
    failure: str = ""
    round: int = 0
    run: str = ""
