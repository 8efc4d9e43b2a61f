"""FedNova: FedAvg in which a client that takes more steps does not pull the network further towards itself.

Wang, Liu, Liang, Joshi, Poor: Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization
(NeurIPS 2020).

Clients with more examples take more steps in the same number of epochs. In FedAvg they count twice for it: by their
weight, and because they went further. Here the way of each client is divided by the length of its steps together, and
the mean is multiplied by the mean of these lengths.

Departures:
- p_i is a share of the examples of the round's clients, as in FedAvg; in the paper of all clients'.
- How many steps a client takes follows from its number of examples, so the server need not be told.
- Weight decay is part of a gradient, as in the authors' code; the paper has none.
- Frozen weights, running statistics and whole numbers are averaged as in FedAvg.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from potluck.core.errors import ConfigError
from potluck.core.fit import MOMENTUM, steps_of
from potluck.core.means import NameMean
from potluck.core.tensors import mean_type, restore_type
from potluck.core.threads import one_thread
from potluck.core.types import Client, Context, Level, Tensors, Train, Update
from potluck.parts.one_network import OneNetwork
from potluck.parts.server_optimizer import weights_of


@dataclass(frozen=True)
class FedNova(OneNetwork):
    """FedAvg over how far clients went for each of their steps."""

    paper: ClassVar[str] = "Wang et al.: Tackling the Objective Inconsistency Problem (NeurIPS 2020)"

    def init(self, ctx: Context) -> Tensors:
        rule = ctx.task.train.rule
        asked = ", ".join(f"{name} = {value}" for name, value in rule.options if value)
        if rule.kind is not torch.optim.SGD or asked:
            found = f"'sgd' with {asked}" if rule.kind is torch.optim.SGD else f"'{rule.name}'"
            raise ConfigError(
                f"[train] optimizer is {found}, but FedNova knows the length of SGD's steps alone, with or without "
                "momentum: let it be 'sgd'"
            )
        return super().init(ctx)

    def aggregate(self, state: Tensors, updates: Iterable[Update], ctx: Context) -> Tensors:
        mean = NormalisedMean(state, ctx.once(weight_names, self.trains(ctx.task.largest, ctx)))
        for update in updates:
            mean.add(update.payload, update.client.size, path_length(update.client, ctx.task.train))
        return mean.result() if self.server is None else self.server.step(state, mean)


def weight_names(level: Level, ctx: Context) -> frozenset[str]:
    """The weights that clients train."""
    return frozenset(weights_of(ctx.build(level)))


def path_length(client: Client, train: Train) -> float:
    """‖a_i‖₁ = (τ - ρ (1 - ρ^τ) / (1 - ρ)) / (1 - ρ) for τ steps with momentum ρ; τ without (FedNova, sec. 4.1)."""
    steps, momentum = steps_of(client.size, train), MOMENTUM if train.momentum is None else train.momentum
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


@dataclass
class NormalisedMean:
    """x + τ_eff Σ_i p_i (x_i - x) / ‖a_i‖₁ with τ_eff = Σ_i p_i ‖a_i‖₁ (FedNova, sec. 5); what is no weight has
    its usual mean.

    Lengths are taken as multiples of the first client's: where all are equal, this is FedAvg's mean to the last bit.
    """

    state: Tensors
    weights: frozenset[str]
    unit: float = 0.0
    lengths: float = 0.0  # Σ n_i ‖a_i‖
    shares: float = 0.0  # Σ n_i / ‖a_i‖
    total: float = 0.0  # Σ n_i
    means: tuple[NameMean, NameMean] = field(init=False)  # of weights, and of the rest

    def __post_init__(self) -> None:
        self.means = NameMean(self.state), NameMean(self.state)

    def add(self, tensors: Mapping[str, Tensor], weight: float = 1.0, length: float = 1.0) -> None:
        """Count in one client, whose steps have this length together."""
        self.unit = self.unit or length
        relative = length / self.unit
        self.lengths += weight * relative
        self.shares += weight / relative
        self.total += weight
        self.means[0].add({name: t for name, t in tensors.items() if name in self.weights}, weight / relative)
        self.means[1].add({name: t for name, t in tensors.items() if name not in self.weights}, weight)

    def result(self) -> Tensors:
        near, new = self.means[0].result(), self.means[1].result()
        stretch = self.lengths / self.total * (self.shares / self.total) if self.total else 1.0
        with one_thread():
            for name in self.means[0].means:
                old, far = self.state[name], near[name]
                if stretch != 1:
                    far = restore_type(old + stretch * (far.to(mean_type(old)) - old), old)
                new[name] = far
        return new

    def held(self, name: str) -> Tensor:
        return self.means[name not in self.weights].held(name)
