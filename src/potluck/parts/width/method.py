"""What methods share if a client trains some channels of every layer of one global network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from potluck.core.goals.goal import Goal
from potluck.core.method import Method
from potluck.core.tensors import load, state_of
from potluck.core.types import Client, Context, Job, Level, Phase, Tensors, Update
from potluck.parts.cut.choice import Choice
from potluck.parts.cut.mean import HolderMean
from potluck.parts.cut.plan import Plan
from potluck.parts.labels import Masking, classes_left_out, label_rows, masked
from potluck.parts.server_optimizer import Optimizer, weights_of
from potluck.parts.width.between import plan_between
from potluck.parts.width.network import deployable, trainable
from potluck.parts.width.per_size import PerSize, give_own, marked, own_names, own_plan, plain, require_trained


@dataclass(frozen=True)
class WidthMethod(Method, ABC):
    """Each client trains the channels that a choice gives it; each weight is averaged over its holders."""

    scaler: bool = True  # divide narrow layers' outputs by their ratio to the global width, in training
    static_norm: bool = True  # no batch-norm statistics in training; clients measure them for exported models
    masking: Masking = "zero"  # what becomes of the logits of classes a client lacks
    per_size: PerSize = "none"  # what is averaged only among clients of one size
    server: Optimizer | None = None  # a step towards the mean, instead of the mean itself

    @abstractmethod
    def choice(self, ctx: Context) -> Choice:
        """Which channels a client gets in this round."""

    @property
    def calibrated(self) -> bool:
        return self.static_norm

    def leaves_out(self, goal: Goal) -> Sequence[str]:
        return classes_left_out(self.masking, goal, by_row=True)

    def trains(self, level: Level, ctx: Context) -> Level:
        return level

    def init(self, ctx: Context) -> Tensors:
        net, own, levels = self.network(ctx.task.largest, ctx), own_names(ctx, self.per_size), ctx.task.levels
        state = give_own(state_of(net), own, levels)
        return state if self.server is None else state | self.server.begin(give_own(weights_of(net), own, levels))

    def distribute(self, state: Tensors, client: Client, ctx: Context) -> Tensors:
        return self.plan(client.level, ctx).take(state)

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        level = job.client.level
        net = ctx.once(WidthMethod.network, self, level)
        load(net, job.payload if self.per_size == "none" else plain(job.payload, own_names(ctx, self.per_size), level))
        return net

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        return [Phase(*masked(self.masking, job.client, ctx))]

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        if self.per_size == "none":
            return state_of(net), {}
        return marked(state_of(net), own_names(ctx, self.per_size), job.client.level), {}

    def aggregate(self, state: Tensors, updates: Iterable[Update], ctx: Context) -> Tensors:
        """Each scalar is the mean over those who hold it, head rows over those with the label (HeteroFL, eq. 1-3)."""
        mean = HolderMean(state)
        for update in updates:
            mean.add(update.payload, plan=self.plan(update.client.level, ctx), rows=label_rows(update.client, ctx))
        return mean.result() if self.server is None else self.server.step(state, mean)

    def export(self, state: Tensors, level: Level, ctx: Context) -> nn.Module:
        own = own_names(ctx, self.per_size)
        require_trained(level, own, ctx)
        return deployable(
            plain(self.plan(level, ctx).take(state), own, level), level, ctx, self.static_norm, self.scaler
        )

    def network(self, level: Level, ctx: Context) -> nn.Module:
        """The network of this level as clients train it."""
        return trainable(level, ctx, self.static_norm, self.scaler)

    def plan(self, level: Level, ctx: Context) -> Plan:
        """Which part of the global network this level holds in this round."""
        return ctx.once(WidthMethod.make_plan, self, level, self.choice(ctx))

    def make_plan(self, level: Level, choice: Choice, ctx: Context) -> Plan:
        """The plan that a choice makes."""
        held = plan_between(ctx, ctx.task.largest, level, choice)
        return own_plan(held, own_names(ctx, self.per_size), {level: held})
