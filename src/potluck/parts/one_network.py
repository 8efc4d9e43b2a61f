"""What methods share if one network serves all clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from potluck.core.means import NameMean
from potluck.core.method import Method
from potluck.core.names import outside
from potluck.core.tensors import state_of
from potluck.core.types import Client, Context, Level, Ratio, Tensors, Update
from potluck.parts.server_optimizer import MOMENTS, Optimizer, weights_of


@dataclass(frozen=True)
class OneNetwork(Method):
    """One network for all; devices that cannot carry it sit out."""

    width: Ratio | None = None  # of the network everybody trains; the largest level's if not given
    server: Optimizer | None = None  # a step towards the mean, instead of the mean itself

    def trains(self, level: Level, ctx: Context) -> Level:
        largest = ctx.task.largest
        return largest if self.width in (None, largest.ratio) else Level(f"{self.width:g}", self.width)

    def init(self, ctx: Context) -> Tensors:
        net = ctx.build(self.trains(ctx.task.largest, ctx))
        return state_of(net) if self.server is None else state_of(net) | self.server.begin(weights_of(net))

    def distribute(self, state: Tensors, client: Client, ctx: Context) -> Tensors:
        return state if self.server is None else outside(MOMENTS, state)

    def aggregate(self, state: Tensors, updates: Iterable[Update], ctx: Context) -> Tensors:
        """w = Σ_k n_k w_k / Σ_k n_k (FedAvg, alg. 1)."""
        mean = NameMean(state)
        for update in updates:
            mean.add(update.payload, update.client.size)
        return mean.result() if self.server is None else self.server.step(state, mean)
