"""A method whose clients keep their heads."""

from dataclasses import dataclass, replace
from typing import ClassVar

import potluck
from potluck.core.tensors import state_of


@dataclass(frozen=True)
class OwnHeads(potluck.Method):
    """FedAvg of everything but the head, which stays on its client."""

    shares_model: ClassVar[bool] = False

    def localize(self, job, ctx, personal):
        return super().localize(replace(job, payload={**job.payload, **personal}), ctx, personal)

    def collect(self, net, job, ctx):
        tensors, head = state_of(net), ctx.task.head(job.client.level)
        return {name: t for name, t in tensors.items() if name not in head}, {name: tensors[name] for name in head}
