"""A loss of the user's own, which is all that is known of what is learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from potluck.core.goals.goal import Goal, Sums, scalar
from potluck.core.inputs import count_in


@dataclass(frozen=True)
class Own(Goal):
    """Whatever the loss says. It is handed what the network returns, as it is, and the targets."""

    name: ClassVar[str] = "own"

    def outputs(self, output: object) -> Any:
        return output

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        assert self.criterion is not None
        return self.criterion(outputs, targets)

    def sums(self, outputs: Any, inputs: Any, targets: Any) -> Sums:
        count = count_in(inputs)
        return {"loss": (float(scalar(self.loss(outputs, targets))) * count, count)}

    def scored(self, outputs: Any, targets: Any) -> tuple[Any, Any]:
        return outputs, targets

    def obstacle(self, outputs: Any, targets: Any, classes: int) -> str:
        return ""

    def targets(self, given: Tensor, what: str) -> Tensor:
        return given.float() if given.is_floating_point() else given
