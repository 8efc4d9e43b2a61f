"""FjORD: ordered dropout. A client trains every width up to its own, and its widest teaches the others.

Horváth, Laskaridis, Almeida, Leontiadis, Venieris, Lane: FjORD: Fair and Accurate Federated Learning
under heterogeneous targets with Ordered Dropout (NeurIPS 2021).

At every step a width is drawn from those a client can carry. The network of that width is the first
channels of every layer of the client's own, so that the first channels learn to do without the rest
and every narrower network can be cut out of the global one. Batch norm's scale and shift are shared
by all widths, its running statistics are each width's own.

Departures:
- The widths are those of the levels.
- The loss is that of the authors' Flower baseline: the widest learns the labels, the drawn width the
  widest's probabilities. The paper mixes both terms with a weight and a temperature.
- When the drawn width is the client's own, the distillation has no gradient and is left out. The
  baseline computes it all the same, which updates that width's running statistics twice.
- A client is sent the part that it holds; the baseline sends everybody the whole network.
- In a dimension made of several parts (heads, gates) the first channels of every part are kept.
- `per_size = "norms"` is not FjORD's but NeFL's idea: scale and shift are each width's own, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from potluck.core.errors import ConfigError
from potluck.core.goals.goal import Goal
from potluck.core.inputs import Inputs, call
from potluck.core.method import Method, recipient
from potluck.core.tensors import load, state_of
from potluck.core.types import Batch, Client, Context, Job, Level, Phase, Tensors, Update
from potluck.parts.batchnorm import statistic_names
from potluck.parts.cut.mean import HolderMean
from potluck.parts.cut.plan import Plan
from potluck.parts.server_optimizer import Optimizer, weights_of
from potluck.parts.width.between import plan_between
from potluck.parts.width.nested import Inner, Nested
from potluck.parts.width.per_size import PerSize, give_own, marked, own_names, own_plan, owned, require_trained


@dataclass(frozen=True)
class FjORD(Method):
    """Each client trains every width up to its own, the widest teaching the others."""

    paper: ClassVar[str] = "Horváth et al.: FjORD (NeurIPS 2021)"

    distill: bool = True  # the widest learns at every step and teaches the drawn width; or the drawn one learns alone
    per_size: PerSize = "none"  # what every width has its own of, beside running statistics
    server: Optimizer | None = None  # a step towards the mean, instead of the mean itself

    def leaves_out(self, goal: Goal) -> Sequence[str]:
        if self.distill and not goal.softmax:
            raise ConfigError(
                f"FjORD's widest network teaches the others its probabilities of classes, and the task '{goal.name}' "
                "has none; set distill to false, and the drawn width learns alone"
            )
        return []

    def trains(self, level: Level, ctx: Context) -> Level:
        return level

    def init(self, ctx: Context) -> Tensors:
        net, own, levels = ctx.build(ctx.task.largest), self.own(ctx), ctx.task.levels
        state = give_own(state_of(net), own, levels)
        return state if self.server is None else state | self.server.begin(give_own(weights_of(net), own, levels))

    def distribute(self, state: Tensors, client: Client, ctx: Context) -> Tensors:
        return self.plan(client.level, ctx).take(state)

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        level, own = job.client.level, self.own(ctx)
        net = ctx.once(FjORD.network, self, level)
        load(net.widest, self.held(job.payload, level, ctx))
        for inner in net.inner:
            others = set(state_of(inner.net)) - own
            load(inner.net, {name: job.payload[owned(inner.level, name)] for name in own}, optional=others)
        return net

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        return [Phase(partial(distilled_loss if self.distill else drawn_loss, ctx.task.goal))]

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        assert isinstance(net, Nested)
        own = self.own(ctx)
        sent = marked(state_of(net.widest), own, job.client.level)
        for inner in net.inner:
            narrow = {name: tensor for name, tensor in state_of(inner.net).items() if name in own}
            sent |= marked(narrow, own, inner.level)
        return sent, {}

    def aggregate(self, state: Tensors, updates: Iterable[Update], ctx: Context) -> Tensors:
        """Each slice is the mean, weighted by examples, over the clients wide enough to hold it (sec. 3.3)."""
        mean = HolderMean(state)
        for update in updates:
            mean.add(update.payload, update.client.size, self.plan(update.client.level, ctx))
        return mean.result() if self.server is None else self.server.step(state, mean)

    def export(self, state: Tensors, level: Level, ctx: Context) -> nn.Module:
        require_trained(level, self.own(ctx), ctx)
        net = ctx.build(level)
        load(net, self.held(self.distribute(state, recipient(level, ctx), ctx), level, ctx))
        return net.eval()

    def network(self, level: Level, ctx: Context) -> Nested:
        """A client's network of this level, and those of all narrower levels inside it."""

        narrower = widths(level, ctx)[1:]
        inner = [Inner(each, ctx.once(inner_network, each), plan_between(ctx, level, each)) for each in narrower]
        return Nested(ctx.build(level), inner, self.own(ctx))

    def own(self, ctx: Context) -> frozenset[str]:
        """The tensors that every width has its own of."""
        return own_names(ctx, self.per_size).union(ctx.once(statistics_of, ctx.task.largest))

    def plan(self, level: Level, ctx: Context) -> Plan:
        """Which part of the state a client of this level holds: its slice, and its own of every width it trains."""
        return ctx.once(FjORD.make_plan, self, level)

    def make_plan(self, level: Level, ctx: Context) -> Plan:
        """The plan itself, which is made once."""
        plans = {narrow: plan_between(ctx, ctx.task.largest, narrow) for narrow in widths(level, ctx)}
        return own_plan(plans[level], self.own(ctx), plans)

    def held(self, payload: Tensors, level: Level, ctx: Context) -> Tensors:
        """The tensors of the network of this level, by the names it knows them by."""
        own, plan = self.own(ctx), plan_between(ctx, ctx.task.largest, level)
        wires = {name: owned(level, name) if name in own else name for name, _ in plan.entries}
        return {name: payload[wire] for name, wire in wires.items() if wire in payload}  # buffers may be in no state


def inner_network(level: Level, ctx: Context) -> nn.Module:
    """A narrow network that clients of wider levels train inside their own."""
    return ctx.build(level).train()


def statistics_of(level: Level, ctx: Context) -> list[str]:
    """The running statistics of a level's network."""
    return statistic_names(ctx.build(level))


def widths(level: Level, ctx: Context) -> list[Level]:
    """This level, and one of every smaller size, from wide to narrow."""
    smaller = {other.ratio: other for other in ctx.task.levels if other.ratio < level.ratio}
    return [level, *(smaller[ratio] for ratio in sorted(smaller, reverse=True))]


def distilled_loss(goal: Goal, net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """CE(F_max, y) + CE(F_p, softmax(F_max)), p drawn from the client's widths, F_max a constant in the second term."""
    inputs, targets = batch
    inner = draw(net)
    logits = goal.outputs(call(net, inputs))
    loss = goal.loss(logits, targets)
    return loss if inner is None else loss + distillation(goal.outputs(inner(inputs)), logits)


def drawn_loss(goal: Goal, net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """CE(F_p, y), p drawn from the client's widths (FjORD, sec. 3.1)."""
    inputs, targets = batch
    inner = draw(net)
    output = call(net, inputs) if inner is None else inner(inputs)
    return goal.loss(goal.outputs(output), targets)


def draw(net: nn.Module) -> Callable[[Inputs], Any] | None:
    """One of a client's widths, each with equal chance; none stands for its own."""
    assert isinstance(net, Nested)
    number = int(torch.randint(len(net.inner) + 1, ()))
    return partial(net.narrow, net.inner[number]) if number < len(net.inner) else None


def distillation(student: Tensor, teacher: Tensor) -> Tensor:
    """-Σ_c softmax(teacher)_c log softmax(student)_c, the mean over examples."""
    targets = teacher.detach().softmax(-1)
    return F.cross_entropy(student.flatten(0, -2), targets.flatten(0, -2))
