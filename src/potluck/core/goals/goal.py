"""What all goals have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from potluck.core.errors import ConfigError
from potluck.core.inputs import call
from potluck.core.logits import logits_of

if TYPE_CHECKING:
    from potluck.core.types import Batch, Tensors

Criterion = Callable[[Any, Any], Tensor]
"""A loss: (outputs, targets) -> their mean loss."""

Sums = dict[str, tuple[float, int]]
"""What is averaged: a sum and how many it is the sum of."""

Score = dict[str, float]
"""Measures by name."""


def scalar(loss: Any) -> Tensor:
    """A loss, if it is one number. Every batch asks: for larger ones a loss of the user's may give several."""
    if not isinstance(loss, Tensor):
        raise ConfigError(
            f"loss gives a {type(loss).__name__}, but it should give a tensor of one number, from which gradients are "
            "computed"
        )
    if loss.numel() != 1:
        raise ConfigError(
            f"loss gives a tensor of shape {tuple(loss.shape)}, but it should give one number, such as its mean"
        )
    return loss


@dataclass(frozen=True)
class Goal(ABC):
    """What a network should say of its inputs, how wrong it is, and what else can be told of how good it is."""

    criterion: Criterion | None = None  # the user's own loss, instead of the goal's

    name: ClassVar[str]
    softmax: ClassVar[bool] = False  # one of several classes is chosen, by logits with the classes last
    labelled: ClassVar[bool] = False  # an example may have one class, by which it can be dealt out to clients
    target_per: ClassVar[str] = ""  # the part of an example that has a target of its own, if there are several
    means: ClassVar[tuple[str, ...]] = ("loss",)  # the measures that `sums` adds up, the most telling first
    metrics: ClassVar[
        tuple[str, ...]
    ] = ()  # further measures of it, by name (study/metrics.py), unless others are asked for

    def __call__(self, net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
        """The loss of a network on a batch, as a phase of training asks for it."""
        inputs, targets = batch
        return self.loss(self.outputs(call(net, inputs)), targets)

    def outputs(self, output: object) -> Any:
        """The part of a network's output that is learned from."""
        return logits_of(output)

    @abstractmethod
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """The mean loss over a batch."""

    @abstractmethod
    def sums(self, outputs: Any, inputs: Any, targets: Any) -> Sums:
        """What a batch adds to the measures that are means."""

    def derived(self, means: Mapping[str, float]) -> Score:
        """Measures that follow from the means."""
        return {}

    @abstractmethod
    def scored(self, outputs: Any, targets: Any) -> tuple[Any, Any]:
        """What metrics compare: probabilities or numbers, and what they should be, a row per prediction."""

    @abstractmethod
    def obstacle(self, outputs: Any, targets: Any, classes: int) -> str:
        """Why outputs do not fit the targets, to follow "the network" in a sentence; empty if they do."""

    @abstractmethod
    def targets(self, given: Tensor, what: str) -> Tensor:
        """The targets of a data set, or of a batch of it, in the type that the loss needs; or a DataError."""

    def classes_in(self, targets: Tensor) -> int:
        """How many classes there are to choose among, from the targets of all examples."""
        return 0
