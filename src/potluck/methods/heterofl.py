"""HeteroFL: a client trains the first channels of every layer, as many as its level carries.

Diao, Ding, Tarokh: HeteroFL: Computation and Communication Efficient Federated Learning for
Heterogeneous Clients (ICLR 2021).

The narrow network is the top-left corner of the wide one, so its weights are averaged into that
corner: every scalar is the mean over the clients that hold it. Narrow networks scale their layers'
outputs in training, keep no batch-norm statistics (clients measure them when a model is to be
used), and ignore the classes a client does not have.

Departures:
- The network is plain; the Scaler is put in by hooks after every narrowed convolution, linear and
  embedding layer but the head. The authors put it in front of the norms; division is linear, so
  this is the same function.
- Exported narrow networks have the scaling folded into their weights, so that they compute what
  they computed in training. The paper only ever uses the widest network, which has no scaling.
- Batch-norm statistics are gathered from the clients as sums per batch. The authors' code passes
  over the pooled training data, which only a simulator can do; their mean of per-batch statistics
  is kept, batches just do not mix clients. Each level gets statistics of its own.
- In a dimension made of several parts (heads, gates) the first channels of every part are kept, as
  the authors do for their transformer's heads.
- The mask's embedding is averaged like any other; the authors' code never updates it.
- A single leftover example joins the batch before it instead of being a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from potluck.core.method import Method, model_owner, plain_loss
from potluck.core.tensors import load, state_of
from potluck.core.types import Client, Context, Job, Level, Phase, Tensors, Update
from potluck.parts.batchnorm import forget_statistics, statistic_names
from potluck.parts.blocks import blocks_of
from potluck.parts.masked_loss import label_mask, loss_minus_infinity, loss_zero
from potluck.parts.scaler import fold_scaling, scale_outputs
from potluck.parts.width import HolderMean, Plan, prefix_plan, shapes_of

Rescale = Callable[[nn.Module, float, Collection[str], Collection[str]], nn.Module]
LOSSES = {"zero": loss_zero, "-inf": loss_minus_infinity, "off": plain_loss}


@dataclass(frozen=True)
class HeteroFL(Method):
    """Each client trains the first channels of every layer; each weight is averaged over its holders."""

    paper: ClassVar[str] = "Diao, Ding, Tarokh: HeteroFL (ICLR 2021)"

    scaler: bool = True  # divide narrow layers' outputs by their ratio to the global width, in training
    static_norm: bool = True  # no batch-norm statistics in training; clients measure them for exported models
    masking: Literal["zero", "-inf", "off"] = "zero"  # what becomes of the logits of classes a client lacks

    @property
    def calibrated(self) -> bool:
        return self.static_norm

    def ratio(self, level: Level, ctx: Context) -> float:
        return level.ratio

    def init(self, ctx: Context) -> Tensors:
        return state_of(self.network(ctx.task.largest, ctx))

    def distribute(self, state: Tensors, client: Client, ctx: Context) -> Tensors:
        return self.plan(client.level, ctx).take(state)

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        level = job.client.level
        net = ctx.once(("net", level), lambda: self.rescaled(self.network(level, ctx), level, ctx, scale_outputs))
        load(net, job.payload)
        return net

    def phases(self, job: Job, ctx: Context) -> Sequence[Phase]:
        return [Phase(LOSSES[self.masking], {"mask": label_mask(job.client, ctx.task.classes)})]

    def aggregate(self, state: Tensors, updates: Iterable[Update], ctx: Context) -> Tensors:
        """Eq. 1-3: each scalar is the plain mean over the clients that hold it, head rows over those with the label."""
        mean = HolderMean(state)
        for update in updates:
            mean.add(update.payload, self.plan(update.client.level, ctx), rows=label_rows(update.client, ctx))
        return mean.result()

    def export(self, state: Tensors, level: Level, ctx: Context, personal: Tensors | None = None) -> nn.Module:
        net = ctx.build(level.ratio)
        load(net, self.distribute(state, model_owner(level, ctx), ctx), optional=self.unmeasured(net))
        return self.rescaled(net, level, ctx, fold_scaling).eval()

    def network(self, level: Level, ctx: Context) -> nn.Module:
        """The network of this level as clients train it, the scaler aside."""
        net = ctx.build(level.ratio)
        return forget_statistics(net) if self.static_norm else net

    def rescaled(self, net: nn.Module, level: Level, ctx: Context, how: Rescale) -> nn.Module:
        """The network with its narrowed layers scaled, by hooks in training or in the weights of an export."""
        if not self.scaler:
            return net
        return how(net, level.ratio / ctx.task.largest.ratio, self.plan(level, ctx).narrowed, ctx.task.head)

    def plan(self, level: Level, ctx: Context) -> Plan:
        """Which part of the global network this level holds."""

        def make() -> Plan:
            wide, narrow = (self.network(of, ctx) for of in (ctx.task.largest, level))
            return prefix_plan(shapes_of(wide.state_dict()), shapes_of(narrow.state_dict()), blocks_of(wide))

        return ctx.once(("plan", level), make)

    def unmeasured(self, net: nn.Module) -> list[str]:
        """The statistics of an exported network that no client has measured yet."""
        return statistic_names(net) if self.static_norm else []


def label_rows(client: Client, ctx: Context) -> dict[str, Tensor]:
    """The rows a client has a say in, of the head and of token embeddings: those of the classes in its data.

    Rows beyond the classes (the mask's) are everybody's.
    """
    rows = torch.tensor(client.labels, dtype=torch.long)
    beyond = {
        name: torch.cat([rows, torch.arange(ctx.task.classes, count)]) for name, count in ctx.task.embeddings.items()
    }
    return {**dict.fromkeys(ctx.task.head, rows), **beyond}
