"""The mean of weights, some of which arrive whole and some in factors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from potluck.core.tensors import approach, mean_type, restore_type
from potluck.core.threads import in_parallel
from potluck.core.types import Tensors
from potluck.parts.lowrank.layers import Unrolled, factor_names


@dataclass
class ProductMean:
    """The weighted running mean of every layer's unrolled weight; A B is added without a copy of its own."""

    layers: Mapping[str, Unrolled]
    state: Tensors
    means: Tensors = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    norms: Tensors = field(default_factory=dict)  # the largest ‖A‖_F and ‖B‖_F sent for each layer

    def add(self, tensors: Mapping[str, Tensor], weight: float) -> None:
        """Count one client in, with whatever layers it sent."""
        if not weight:
            return
        sent = {name: found for name in self.layers if (found := self.pick(name, tensors))}
        for name in sent:
            self.weights[name] = self.weights.get(name, 0.0) + weight
            if name not in self.means:
                layer, old = self.layers[name], self.state[f"{name}.weight"]
                self.means[name] = torch.empty(layer.groups, layer.rows, layer.columns, dtype=mean_type(old))
        longest_first = sorted(sent, key=lambda name: -self.layers[name].size())
        in_parallel(lambda name: self.join(name, sent[name], weight / self.weights[name]), longest_first)

    def pick(self, name: str, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """What was sent for a layer: its weight, the weights of its factors, or nothing."""
        whole, pair = f"{name}.weight", factor_names(name)
        if whole in tensors:
            return (tensors[whole],)
        return tuple(tensors[each] for each in pair) if all(each in tensors for each in pair) else ()

    def join(self, name: str, sent: tuple[Tensor, ...], share: float) -> None:
        """mean ← (1 - s) mean + s W, where W may be A B; layers are joined side by side, each by one thread."""
        layer, mean = self.layers[name], self.means[name]
        if len(sent) == 1:
            approach(mean, layer.matrix(sent[0]), share)
        else:
            left, right = (each.to(mean.dtype) for each in layer.join(*sent))
            for into, a, b in zip(mean, left, right, strict=True):
                into.addmm_(a, b, beta=1 - share, alpha=share) if share != 1 else torch.mm(a, b, out=into)
            norms = torch.stack([factor.float().norm() for factor in reversed(sent)])
            self.norms[name] = torch.maximum(self.norms.get(name, norms), norms)

    def result(self) -> Tensors:
        """The weights of the layers that anybody sent."""

        def roll_up(name: str) -> Tensor:
            return restore_type(self.layers[name].weight(self.means[name]), self.state[f"{name}.weight"])

        names = list(self.means)
        return {f"{name}.weight": weight for name, weight in zip(names, in_parallel(roll_up, names), strict=True)}
