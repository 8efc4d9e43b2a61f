"""The mean over those who hold a scalar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from potluck.core.tensors import is_whole, mean_type, restore_type
from potluck.core.types import Tensors
from potluck.parts.cut.holders import Band, Holders
from potluck.parts.cut.kept import HeldPart
from potluck.parts.cut.plan import Plan, shapes_of, whole_plan


@dataclass
class HolderMean:
    """The weighted mean of every scalar over the clients that hold it, as updates stream in.

    A running mean in the tensors' own precision (at least float32), whose error grows like √n
    units in the last place with the number of holders n; equal contributions give back their value
    exactly. Whole numbers are summed in float64 and rounded. A scalar that nobody held keeps the
    value it had.
    """

    state: Tensors
    means: Tensors = field(default_factory=dict)
    holders: dict[str, Holders] = field(default_factory=dict)
    nobody: dict[tuple[tuple[int, ...], torch.dtype], Holders] = field(default_factory=dict)
    counts: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # of whole numbers: sum and weight

    def add(
        self,
        tensors: Mapping[str, Tensor],
        weight: float = 1.0,
        plan: Plan | None = None,
        rows: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Count one client in: with the part that its plan holds, or all; of tensors in `rows`, with these alone."""
        plan = plan or self.everything
        joined: dict[object, tuple[Holders, list[Band]]] = {}  # tensors that all cut alike share theirs
        for name, sent in tensors.items():
            part = plan.parts[name]
            if rows and name in rows:
                held = rows[name].sort().values
                part, sent = part.of_rows(tuple(held.tolist())), sent[held]
            if not weight or not sent.numel():
                continue
            if is_whole(self.state[name]):
                self.count(name, sent, part, weight)
                continue
            mean = self.begin(name, part)
            key = (self.holders[name], part)
            if key not in joined:
                joined[key] = self.holders[name].join(part.table.cut, weight, mean.dtype)
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

    def count(self, name: str, sent: Tensor, part: HeldPart, weight: float) -> None:
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
        result = dict(self.state)
        for name, mean in self.means.items():
            result[name] = restore_type(mean, self.state[name])
        for name, (total, held) in self.counts.items():
            old = self.state[name]
            result[name] = torch.where(held > 0, restore_type(total / held, old), old)
        return result
