"""Numbers and yes or no: goals whose outputs are compared with their targets one by one."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from potluck.core.errors import DataError
from potluck.core.goals.goal import Goal, Sums, scalar


@dataclass(frozen=True)
class OneByOne(Goal):
    """Outputs of the shape of their targets; a last dimension of one may be missing on either side."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        outputs, targets = paired(outputs, targets)
        return self.each(outputs, targets).mean() if self.criterion is None else self.criterion(outputs, targets)

    @abstractmethod
    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of every number."""

    def sums(self, outputs: Tensor, inputs: Any, targets: Tensor) -> Sums:
        outputs, targets = paired(outputs, targets)
        count = targets.numel()
        if self.criterion is None:
            return {"loss": (float(self.each(outputs, targets).double().sum()), count)}
        return {"loss": (float(scalar(self.criterion(outputs, targets))) * count, count)}

    def obstacle(self, outputs: Tensor, targets: Tensor, classes: int) -> str:
        found, wanted = paired(outputs, targets)
        if found.shape == wanted.shape:
            return ""
        return f"gives outputs of shape {tuple(outputs.shape)}, but the targets have shape {tuple(targets.shape)}"


def paired(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Both without a last dimension of one, where only one of them has it."""
    if outputs.dim() == targets.dim() + 1 and outputs.shape[-1] == 1:
        return outputs.squeeze(-1), targets
    if targets.dim() == outputs.dim() + 1 and targets.shape[-1] == 1:
        return outputs, targets.squeeze(-1)
    return outputs, targets


@dataclass(frozen=True)
class Regression(OneByOne):
    """One number, or several, by mean squared error."""

    name: ClassVar[str] = "regression"
    metrics: ClassVar[tuple[str, ...]] = ("mae", "r2")

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs, targets, reduction="none")

    def scored(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        outputs, targets = paired(outputs, targets)
        return outputs.double(), targets.double()

    def targets(self, given: Tensor, what: str) -> Tensor:
        found = given.float()
        if not bool(torch.isfinite(found).all()):
            raise DataError(f"{what}: a target is not finite; remove that example, or replace it")
        return found


@dataclass(frozen=True)
class Binary(OneByOne):
    """Yes or no, from a single logit: yes if it is above 0."""

    name: ClassVar[str] = "binary"
    labelled: ClassVar[bool] = True
    means: ClassVar[tuple[str, ...]] = ("accuracy", "loss")

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")

    def sums(self, outputs: Tensor, inputs: Any, targets: Tensor) -> Sums:
        found, wanted = paired(outputs, targets)
        right = (found > 0) == (wanted > 0.5)
        return {"accuracy": (float(right.sum()), right.numel()), **super().sums(outputs, inputs, targets)}

    def scored(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        outputs, targets = paired(outputs, targets)
        return outputs.sigmoid(), targets.long()

    def targets(self, given: Tensor, what: str) -> Tensor:
        found = given.float()
        if not bool(((found == 0) | (found == 1)).all()):
            wrong = found[(found != 0) & (found != 1)][0].item()
            raise DataError(f"{what}: a target is {wrong:g}, but for the task '{self.name}' it should be 0 or 1")
        return found


@dataclass(frozen=True)
class MultiLabel(Binary):
    """Yes or no for each of several labels: a logit for each."""

    name: ClassVar[str] = "multi-label"
    labelled: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = ("macro-f1",)

    def targets(self, given: Tensor, what: str) -> Tensor:
        if given.dim() < 2:
            raise DataError(
                f"{what}: targets have shape {tuple(given.shape)}, but for the task 'multi-label' each example needs 0 "
                "or 1 for every label, as in [1, 0, 1]"
            )
        return super().targets(given, what)
