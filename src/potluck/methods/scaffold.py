"""SCAFFOLD: FedAvg whose clients know how their own gradients differ from everybody's, and take the difference out.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for Federated Learning
(ICML 2020). Algorithm 1 with option II.

A client keeps the mean of the gradients of its last training, its control variate c_i; the server has c, their mean
over all clients. A client's step is corrected by c - c_i, so that all clients move as if they saw everybody's examples.
A client is sent the network and c, and sends as much back.

Departures:
- The corrected step is that of a corrected loss: the gradient of ⟨c - c_i, y⟩ is c - c_i.
- Option II reads the mean of the gradients off the way that a client went. So a step must be w - η·g: momentum,
  clipping and other optimisers are refused. Weight decay is part of the gradient.
- The server's rate η_g is that of a server optimiser, `{ name = "momentum", beta = 0.0, lr = η_g }`. It is 1 without
  one, as in the paper's experiments.
- c is a mean over all clients, so all must take part: unless told otherwise, they train the smallest level's network.
- Frozen weights, running statistics and whole numbers have no control variates. They are averaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from potluck.core.errors import ConfigError
from potluck.core.fit import in_round, steps_of
from potluck.core.goals.goal import Goal
from potluck.core.means import NameMean
from potluck.core.names import inside, outside, placed, under
from potluck.core.tensors import load, state_of
from potluck.core.types import Batch, Context, Job, Level, Phase, Tensors, Update
from potluck.parts.one_network import OneNetwork
from potluck.parts.server_optimizer import MOMENTS

CONTROL = "control"  # the place of c in state and payload, of c_i⁺ - c_i in an update


@dataclass(frozen=True)
class SCAFFOLD(OneNetwork):
    """FedAvg whose clients correct their steps by how their gradients differ from everybody's."""

    paper: ClassVar[str] = "Karimireddy et al.: SCAFFOLD (ICML 2020)"
    reduces_to_fedavg: ClassVar[bool] = False  # in the first round it is
    steps_plainly: ClassVar[bool] = True

    def trains(self, level: Level, ctx: Context) -> Level:
        if self.width is not None:
            return super().trains(level, ctx)
        return min(ctx.task.levels, key=lambda each: each.ratio)

    def init(self, ctx: Context) -> Tensors:
        for level in ctx.task.levels:
            if not self.admits(level, ctx):
                raise ConfigError(
                    f"[method] width is {self.width:g}, which level '{level.name}' ({level.ratio:g}) cannot carry, but "
                    "in SCAFFOLD all clients take part: lower it, or leave that level out"
                )
        weights = trained(ctx.build(self.trains(ctx.task.largest, ctx)))
        return super().init(ctx) | under(CONTROL, {name: torch.zeros_like(p.detach()) for name, p in weights.items()})

    def aggregate(self, state: Tensors, updates: Iterable[Update], ctx: Context) -> Tensors:
        """x += η_g / |S| Σ_i Δy_i, c += 1 / N Σ_i Δc_i (alg. 1)."""
        mean, came = NameMean(state), 0
        for update in updates:
            mean.add(update.payload)
            came += 1
        new = mean.result() if self.server is None else self.server.step(state, mean)
        for name in under(CONTROL, inside(CONTROL, state)):
            if name in mean.means:
                new[name] = state[name] + came / ctx.task.clients * new[name]
        return new

    def export(self, state: Tensors, level: Level, ctx: Context) -> nn.Module:
        net = ctx.build(self.trains(level, ctx))
        load(net, outside(CONTROL, outside(MOMENTS, state)))
        return net.eval()

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        net = ctx.once(SCAFFOLD.network, self, self.trains(job.client.level, ctx))
        load(net.net, outside(CONTROL, job.payload))
        for name, buffer in net.corrections().items():
            everybody = job.payload[placed(CONTROL, name)]
            buffer.copy_(everybody - personal[name] if personal else everybody)
        return net

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        return [Phase(partial(corrected_loss, ctx.task.goal))]

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        """(y_i, c_i⁺ - c_i) is sent, c_i⁺ = c_i - c + (x - y_i) / (K η_l) stays (alg. 1, option II)."""
        assert isinstance(net, Corrected)
        train = in_round(ctx.task.train, job.round, ctx.task.rounds)
        way = steps_of(job.client.size, train) * train.lr
        sent, kept = state_of(net.net), Tensors()
        for name, correction in net.corrections().items():
            gradient = (job.payload[name].to(correction) - sent[name]) / way
            sent[placed(CONTROL, name)] = gradient - job.payload[placed(CONTROL, name)].to(correction)
            kept[name] = gradient - correction
        return sent, kept

    def network(self, level: Level, ctx: Context) -> Corrected:
        """A network as clients train it."""
        return Corrected(ctx.build(level))


def trained(net: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that have a control variate; one that a network uses in several places has one."""
    return {name: p for name, p in net.named_parameters() if p.requires_grad and p.is_floating_point()}


class Corrected(nn.Module):
    """A network that carries its client's c - c_i along, also where several clients are trained at once."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.buffer_names = {name: placed(CONTROL, name.replace(".", "/")) for name in trained(net)}
        for name, weight in trained(net).items():
            self.register_buffer(self.buffer_names[name], torch.zeros_like(weight.detach()), persistent=False)

    def corrections(self) -> Tensors:
        """c - c_i, by the names of the weights."""
        return {name: getattr(self, buffer) for name, buffer in self.buffer_names.items()}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.net(*args, **kwargs)


def corrected_loss(goal: Goal, net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """f_i(y) + ⟨c - c_i, y⟩, whose gradient is g_i(y) + c - c_i (SCAFFOLD, alg. 1)."""
    assert isinstance(net, Corrected)
    weights = dict(net.net.named_parameters())
    products = [(correction * weights[name]).sum() for name, correction in net.corrections().items()]
    return goal(net, batch, extra) + torch.stack(products).sum()
