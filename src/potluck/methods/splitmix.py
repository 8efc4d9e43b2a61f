"""Split-Mix: many narrow base networks; a client trains as many as it can carry, and uses them together.

Hong, Wang, Wang, Zhou: Efficient Split-Mix Federated Learning for On-Demand and In-Situ Customization
(ICLR 2022).

The wide network is split into N independent ones of 1/N of its width. Each round a client of ratio R
trains about R N of them, each for itself. A device mixes the logits of the first few: as many as it can
carry, which may be any number, decided after training.

Departures:
- Base network k starts as the k-th of N windows side by side of a wide network's weights. From a
  factory each base has a wide network of its own, drawn from its own seed, so the bases are independent.
  From a ready-made instance all are cut from the same one, but of other channels. The authors draw each
  base with the fan-in of the wide network instead of its own, which is what weights of a wide network are:
  one rule for both sources, and with PyTorch's initialisers the authors' distribution.
- Numbers of bases are whole numbers: a level gets as many as fit into its ratio. The authors' code
  divides floats, and 2.8 / 0.4 loses a base.
- The width of a base is that of the largest level divided by the number of bases, unless `width` says another:
  FedHM's authors compare with nine bases of width 0.35, so that all of them have about the full network's size.
  By default there are as few as let the smallest level carry one.
- Masked cross-entropy is masked by the classes of the client, as in HeteroFL, and always; the authors mask
  by those of the batch, and only where clients lack classes.
- Batch-norm statistics are measured by the clients, as in HeteroFL; the authors' recipes use those of the
  test batch. Exported networks have the scaling folded into their weights.
- The first base of every client comes from passes over all bases, shuffled anew for each pass. Whose turn
  it is follows from the round and the place in the cohort, so nothing needs to be remembered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval
from torch import Tensor, nn

from potluck.core.errors import ConfigError, ModelError
from potluck.core.form import Form, form_of
from potluck.core.goals.goal import Goal
from potluck.core.method import Method, recipient
from potluck.core.names import inside, under
from potluck.core.random import seeded, stream
from potluck.core.tensors import load, state_of
from potluck.core.types import Batch, Client, Context, Job, Level, Loss, Phase, Ratio, Tensors
from potluck.parts.batchnorm import forget_statistics
from potluck.parts.cut.choice import Disjoint
from potluck.parts.ensemble import Ensemble
from potluck.parts.labels import Masking, classes_left_out, masked
from potluck.parts.width.between import plan_between
from potluck.parts.width.network import deployable, trainable

SLACK = 1.011  # a level written as 0.33 carries a third
MOST_BASES = 1000

Bases = Annotated[int, Interval(ge=1, le=MOST_BASES)]


@dataclass(frozen=True)
class SplitMix(Method):
    """Each client trains as many narrow base networks as it can carry; their logits are averaged."""

    paper: ClassVar[str] = "Hong, Wang, Wang, Zhou: Split-Mix (ICLR 2022)"
    reduces_to_fedavg: ClassVar[bool] = False  # one base is FedAvg, but from other initial weights

    bases: Bases | None = None  # how many base networks; as few as let every level carry one
    width: Ratio | None = None  # of a base network; the largest level's divided by `bases` if not given
    scaler: bool = True  # divide layers' outputs by their ratio to the global width, in training
    static_norm: bool = True  # no batch-norm statistics in training; clients measure them for exported models
    masking: Masking = "zero"  # what becomes of the logits of classes a client lacks

    @property
    def calibrated(self) -> bool:
        return self.static_norm

    def leaves_out(self, goal: Goal) -> Sequence[str]:
        return classes_left_out(self.masking, goal, by_row=False)

    def admits(self, level: Level, ctx: Context) -> bool:
        return bases_in(level, self.share(ctx), self.count(ctx)) >= 1

    def trains(self, level: Level, ctx: Context) -> Level:
        return self.base(ctx)

    def builds(self, ctx: Context) -> Iterable[Level]:
        return [ctx.task.largest, self.base(ctx)]

    def init(self, ctx: Context) -> Tensors:
        """w_k is the k-th of N windows of a wide network's weights."""
        state: Tensors = {}
        largest, base, count = ctx.task.largest, self.base(ctx), self.count(ctx)
        for number in range(count):
            with seeded(ctx.seed, "base", number):
                wide = ctx.task.model(largest)
            window = plan_between(ctx, largest, base, Disjoint(number, count))
            taken = window.take(state_of(forget_statistics(wide) if self.static_norm else wide))
            state |= under(number, {name: tensor.clone() for name, tensor in taken.items()})
        return state

    def distribute(self, state: Tensors, client: Client, ctx: Context) -> Tensors:
        payload: Tensors = {}
        for number in self.chosen(client, ctx):
            payload |= under(number, inside(number, state))
        return payload

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        chosen = self.chosen(job.client, ctx)
        net = ctx.once(SplitMix.network, self, len(chosen))
        for number, member in zip(chosen, net.members, strict=True):
            load(member, inside(number, job.payload))
        return net

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        loss, extra = masked(self.masking, job.client, ctx)
        return [Phase(partial(sum_of_losses, loss), extra)]

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        assert isinstance(net, Ensemble)
        sent: Tensors = {}
        for number, member in zip(self.chosen(job.client, ctx), net.members, strict=True):
            sent |= under(number, state_of(member))
        return sent, {}

    def export(self, state: Tensors, level: Level, ctx: Context) -> nn.Module:
        """The first bases that a device of this ratio carries; the ratio need not be one that was trained."""
        base, chosen = self.base(ctx), self.chosen(recipient(level, ctx), ctx)
        if not chosen:
            raise ModelError(
                f"level '{level.name}' has ratio {level.ratio:g}, which carries none of the base networks of ratio "
                f"{self.share(ctx).ratio:g}; choose a larger ratio, or more bases"
            )
        members = (deployable(inside(k, state), base, ctx, self.static_norm, self.scaler) for k in chosen)
        return Ensemble(members).eval()

    def expects(self, job: Job, ctx: Context) -> Form:
        return form_of(job.payload)  # who trains which bases differs from client to client

    def network(self, members: int, ctx: Context) -> Ensemble:
        """Base networks that a client trains side by side."""
        base = self.base(ctx)
        return Ensemble(trainable(base, ctx, self.static_norm, self.scaler) for _ in range(members))

    def count(self, ctx: Context) -> int:
        """N: how many base networks there are."""
        if self.bases is not None:
            return self.bases
        smallest = min(level.ratio for level in ctx.task.levels)
        needed = ctx.task.largest.ratio / smallest / SLACK
        if needed > MOST_BASES:
            raise ConfigError(
                f"a level of ratio {smallest:g} would take more than {MOST_BASES} base networks: raise it, or set "
                "method.bases and let that level sit out"
            )
        return math.ceil(needed)

    def share(self, ctx: Context) -> Level:
        """The smallest level that carries a base network."""
        return Level("share", ctx.task.largest.ratio / self.count(ctx))

    def base(self, ctx: Context) -> Level:
        """The size of a base network."""
        largest = ctx.task.largest
        if self.width is not None and self.width > largest.ratio:
            raise ConfigError(
                f"[method] width is {self.width:g}, but a base network is cut from that of the largest level, "
                f"'{largest.name}': let width be at most its ratio, {largest.ratio:g}"
            )
        return Level("base", self.share(ctx).ratio if self.width is None else self.width)

    def chosen(self, client: Client, ctx: Context) -> list[int]:
        """The bases a client trains: one that is due, the others at random; one that only uses them has the first."""
        count = self.count(ctx)
        carried = bases_in(client.level, self.share(ctx), count)
        if client.turn is None:
            return list(range(carried))
        first = due_base(client.turn, count, ctx.seed)
        others = torch.tensor([number for number in range(count) if number != first], dtype=torch.long)
        drawn = torch.randperm(len(others), generator=ctx.rng("bases", client.id))[: carried - 1]
        return sorted([first, *others[drawn].tolist()])


def bases_in(level: Level, share: Level, count: int) -> int:
    """⌊R / r⌋: how many of so many base networks fit into a level's ratio."""
    return min(count, math.floor(level.ratio / share.ratio * SLACK))


def due_base(turn: int, count: int, seed: int) -> int:
    """Whose turn it is in pass after pass over all bases, each in an order of its own (alg. 2)."""
    order = torch.randperm(count, generator=stream(seed, "pass", turn // count))
    return int(order[turn % count])


def sum_of_losses(loss: Loss, net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """Σ_k ℓ(f_k(x), y) over the members: each learns for itself (alg. 3)."""
    assert isinstance(net, Ensemble)
    return torch.stack([loss(member, batch, extra) for member in net.members]).sum()
