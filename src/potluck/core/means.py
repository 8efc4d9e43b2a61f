"""Means of what clients send, taken as updates stream in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from potluck.core.rows import Row, Waiting
from potluck.core.tensors import approach, is_whole, mean_type, restore_type
from potluck.core.types import Tensors


class Mean(Protocol):
    """A weighted mean that is told one client after the other, and holds no more than one of them."""

    def add(self, tensors: Mapping[str, Tensor], weight: float = 1.0) -> None:
        """Count one client in; a weight of 0 leaves it out."""

    def result(self) -> Tensors:
        """The mean where anybody was counted in, the old value elsewhere."""


@dataclass
class NameMean:
    """w = Σ_k n_k w_k / Σ_k n_k (FedAvg, alg. 1), for each name over those who sent it.

    A running mean in the tensors' own precision (at least float32), whose error grows like √n units in the last place
    with the number of updates n; equal contributions give back their value exactly. Whole numbers are summed in
    float64 and rounded.
    """

    state: Tensors
    means: Tensors = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    waiting: Waiting[None] = field(default_factory=Waiting)

    def add(self, tensors: Mapping[str, Tensor], weight: float = 1.0) -> None:
        if weight <= 0:
            return
        if self.waiting.rows and not self.waiting.takes(tensors):
            self.settle()
        if isinstance(tensors, Row):
            self.waiting.add(tensors, weight, None)
        else:
            self.count(tensors, weight)

    def settle(self) -> None:
        """Count in the rows that wait."""
        waiting, self.waiting = self.waiting, Waiting()
        if len(waiting.rows) == 1:
            self.count(waiting.rows[0], waiting.weights[0])
        else:
            self.count({name: waiting.mean(name) for name in waiting.rows[0]}, sum(waiting.weights))

    def count(self, tensors: Mapping[str, Tensor], weight: float) -> None:
        """Count in what has this weight."""
        for name, tensor in tensors.items():
            old = self.state[name]
            self.weights[name] = self.weights.get(name, 0.0) + weight
            if not is_whole(old):
                if name not in self.means:
                    self.means[name] = torch.empty(tensor.shape, dtype=mean_type(old))
                approach(self.means[name], tensor, weight / self.weights[name])
            else:
                if name not in self.means:
                    self.means[name] = torch.zeros(tensor.shape, dtype=torch.float64)
                self.means[name].add_(tensor, alpha=weight)

    def result(self) -> Tensors:
        if self.waiting.rows:
            self.settle()
        return {**self.state, **{name: self.mean(name) for name in self.means}}

    def held(self, name: str) -> Tensor:
        """Whether anybody was counted in for a tensor."""
        return torch.tensor(name in self.means)

    def mean(self, name: str) -> Tensor:
        """The mean of one tensor, in the type that the state has."""
        old, found = self.state[name], self.means[name]
        return restore_type(found / self.weights[name] if is_whole(old) else found, old)
