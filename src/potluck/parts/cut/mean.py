"""The mean over those who hold a scalar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from potluck.core.rows import Row, Waiting, mean_of_rows
from potluck.core.tensors import is_whole, mean_type, restore_type
from potluck.core.types import Tensors
from potluck.parts.cut.holders import JOINED, Band, Holders
from potluck.parts.cut.kept import HeldPart
from potluck.parts.cut.plan import Plan, shapes_of, whole_plan


@dataclass(frozen=True)
class Told:
    """What a mean is told of a client: the part it holds, and the rows of some tensors that alone count."""

    plan: Plan
    rows: Mapping[str, Tensor]


Joined = dict[tuple[Holders, HeldPart], tuple[Holders, list[Band]]]
"""How holders joined, for tensors that are all cut alike."""


@dataclass
class HolderMean:
    """The weighted mean of every scalar over the clients that hold it, as updates stream in.

    A running mean in the tensors' own precision (at least float32), whose error grows like √n
    units in the last place with the number of holders n; equal contributions give back their value
    exactly. Whole numbers are summed in float64 and rounded. A scalar that nobody held keeps the
    value it had. Clients that were trained at once are averaged at once.
    """

    state: Tensors
    means: Tensors = field(default_factory=dict)
    holders: dict[str, Holders] = field(default_factory=dict)
    nobody: dict[tuple[tuple[int, ...], torch.dtype], Holders] = field(default_factory=dict)
    counts: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # of whole numbers: sum and weight
    waiting: Waiting[Told] = field(default_factory=Waiting)

    def add(
        self,
        tensors: Mapping[str, Tensor],
        weight: float = 1.0,
        plan: Plan | None = None,
        rows: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Count one client in: with the part that its plan holds, or all; of tensors in `rows`, with these alone."""
        if not weight:
            return
        told = Told(plan or self.everything, rows or {})
        waiting = self.waiting
        if waiting.rows and not (waiting.takes(tensors) and waiting.about[0].plan is told.plan):
            self.settle()
        if isinstance(tensors, Row):
            self.waiting.add(tensors, weight, told)
        else:
            self.count(tensors, weight, told)

    def settle(self) -> None:
        """Count in the clients that wait."""
        waiting, self.waiting = self.waiting, Waiting()
        if len(waiting.rows) == 1:
            self.count(waiting.rows[0], waiting.weights[0], waiting.about[0])
        else:
            self.count_together(waiting)

    def count(self, tensors: Mapping[str, Tensor], weight: float, told: Told) -> None:
        """Count in what one client sent."""
        joined: Joined = {}
        for name, sent in tensors.items():
            part = told.plan.parts[name]
            if name in told.rows:
                held = told.rows[name].sort().values
                part, sent = part.of_rows(tuple(held.tolist())), sent[held]
            self.join(name, sent, part, weight, joined)

    def count_together(self, waiting: Waiting[Told]) -> None:
        """Count in several clients with one plan, as one that has their mean and their weight, rows aside."""
        plan, joined = waiting.about[0].plan, Joined()
        for name in waiting.rows[0]:
            part = plan.parts[name]
            if all(name not in told.rows for told in waiting.about):
                self.join(name, waiting.mean(name), part, sum(waiting.weights), joined)
                continue
            weights = rows_weights([told.rows.get(name) for told in waiting.about], waiting.weights, part.shape[0])
            mean = mean_of_rows(waiting.values(name), weights)
            for total, held in alike(weights.sum(0).tolist()):
                self.join(name, mean[list(held)], part.of_rows(held), total, joined)

    def join(self, name: str, sent: Tensor, part: HeldPart, weight: float, joined: Joined) -> None:
        """Move the mean of a tensor towards what was sent of this part."""
        if not sent.numel():
            return
        if is_whole(self.state[name]):
            self.sum_up(name, sent, part, weight)
            return
        mean = self.begin(name, part)
        key = (self.holders[name], part)
        if key not in joined:
            joined[key] = JOINED.found((self.holders[name], part.table.cut, weight, mean.dtype))
        self.holders[name], bands = joined[key]
        if len(part.cut) < 2:
            mean, sent = mean.view(1, -1), sent.view(1, -1)
        across = part.table.across
        for band in bands:
            narrow = sent if len(bands) == 1 else sent[band.narrow]
            across.approach_rows(mean, band.wide, narrow, band.ratio, band.anew)

    @cached_property
    def everything(self) -> Plan:
        """The plan of a client that holds all there is."""
        return whole_plan(shapes_of(self.state))

    def begin(self, name: str, part: HeldPart) -> Tensor:
        """The mean so far: the old value at first, or room for a new one if the whole tensor is sent."""
        if name not in self.means:
            old = self.state[name]
            room = torch.empty(old.shape, dtype=mean_type(old))
            self.means[name] = room if part.whole else room.copy_(old)
            shape = tuple(kept.size for kept in part.table.cut)
            if (shape, room.dtype) not in self.nobody:
                self.nobody[shape, room.dtype] = Holders.nobody(shape)
            self.holders[name] = self.nobody[shape, room.dtype]
        return self.means[name]

    def sum_up(self, name: str, sent: Tensor, part: HeldPart, weight: float) -> None:
        """Add whole numbers to their sum."""
        if name not in self.counts:
            shape = self.state[name].shape
            self.counts[name] = (torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64))
        total, held = self.counts[name]
        if part.whole:
            total.add_(sent, alpha=weight)
            held.add_(weight)
        else:
            total[part.mesh] += weight * sent.double()
            held[part.mesh] += weight

    def result(self) -> Tensors:
        """The mean where there is one, the old value elsewhere."""
        if self.waiting.rows:
            self.settle()
        result = dict(self.state)
        for name, mean in self.means.items():
            result[name] = restore_type(mean, self.state[name])
        for name, (total, held) in self.counts.items():
            old = self.state[name]
            result[name] = torch.where(held > 0, restore_type(total / held, old), old)
        return result

    def held(self, name: str) -> Tensor:
        """Which scalars of a tensor that is no whole numbers anybody holds, as far as clients do not wait."""
        if name not in self.holders:
            return torch.tensor(False)
        return self.holders[name].mask.view(self.state[name].shape)


def rows_weights(held: Sequence[Tensor | None], weights: Sequence[float], rows: int) -> Tensor:
    """The weight that every client has in every row of a tensor; None: it holds all of them."""
    found = torch.zeros(len(held), rows, dtype=torch.float64)
    for row, (chosen, weight) in enumerate(zip(held, weights, strict=True)):
        found[row, slice(None) if chosen is None else chosen] = weight
    return found


def alike(weights: Sequence[float]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """The weights other than 0, each with the rows that have it.

    >>> list(alike([2.0, 0.0, 3.0, 2.0]))
    [(2.0, (0, 3)), (3.0, (2,))]
    """
    for weight in sorted({*weights} - {0.0}):
        yield weight, tuple(row for row, own in enumerate(weights) if own == weight)
