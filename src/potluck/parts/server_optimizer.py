"""What a server may do with the mean of its clients instead of taking it as it is: a step of an optimiser.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization (ICLR 2021) for
FedAdagrad, FedYogi and FedAdam. Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated
Visual Classification (arXiv 1909.06335) for FedAvgM.

Δ = mean - old weights stands for a gradient that points downhill. What an optimiser remembers of every weight is in the
server's state, so a checkpoint has it; no client is sent it. Where nobody covered a scalar in a round, there is no Δ:
the scalar and what is remembered of it stay as they are. Whole numbers, running statistics and frozen weights have no
gradient either, and are averaged as ever.

Departures: Δ is the mean that the method takes, whatever its weights; the papers' clients all count the same. The
accumulator v starts at τ², the smallest that the paper allows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

import torch
from annotated_types import Interval
from torch import Tensor, nn

from potluck.core.means import Mean
from potluck.core.names import placed
from potluck.core.ranges import LARGEST, Should
from potluck.core.tensors import mean_type, restore_type
from potluck.core.threads import one_thread
from potluck.core.types import Tensors

MOMENTS = "moments"  # the place of what an optimiser remembers

Rate = Annotated[float, Interval(gt=0, le=LARGEST), Should("a finite number above 0, at most 1e30")]
Share = Annotated[float, Interval(ge=0, lt=1), Should("a number from 0 to less than 1")]


class CoveringMean(Mean, Protocol):
    """A mean that knows which scalars anybody was counted in for."""

    def held(self, name: str) -> Tensor:
        """True where somebody was, of a tensor's shape or one for all of it; asked for after the result."""


@dataclass(frozen=True)
class ServerOptimizer(ABC):
    """A rule that makes a step of Δ, and of what it remembers of every weight."""

    lr: Rate  # η

    @abstractmethod
    def first(self) -> dict[str, float]:
        """What is remembered of every weight, by name, and its value before the first round."""

    @abstractmethod
    def move(self, delta: Tensor, kept: Tensors) -> tuple[Tensor, Tensors]:
        """How far weights move, and what is remembered of them next."""

    def begin(self, weights: Mapping[str, Tensor]) -> Tensors:
        """What the state has of the optimiser before the first round."""
        return {
            moment(kind, name): torch.full(tensor.shape, value, dtype=mean_type(tensor))
            for name, tensor in weights.items()
            for kind, value in self.first().items()
        }

    def step(self, state: Tensors, mean: CoveringMean) -> Tensors:
        """The next state: a step where somebody covered a weight, the mean of what is no weight."""
        new, kinds = mean.result(), tuple(self.first())
        with one_thread():
            for name, old in state.items():
                if moment(kinds[0], name) not in state:
                    continue
                held, kept = mean.held(name), {kind: state[moment(kind, name)] for kind in kinds}
                far, after = self.move(new[name].to(mean_type(old)) - old, kept)
                new[name] = restore_type(torch.where(held, old + far, old), old)
                for kind in kinds:
                    new[moment(kind, name)] = torch.where(held, after[kind], kept[kind])
        return new


@dataclass(frozen=True)
class Momentum(ServerOptimizer):
    """FedAvgM; with beta = 0, a step of the given rate towards the mean."""

    beta: Share = 0.9
    name: Literal["momentum"] = "momentum"

    def first(self) -> dict[str, float]:
        return {"m": 0.0}

    def move(self, delta: Tensor, kept: Tensors) -> tuple[Tensor, Tensors]:
        """m = β m + Δ, w += η m (Hsu et al.)."""
        m = self.beta * kept["m"] + delta
        return self.lr * m, {"m": m}


@dataclass(frozen=True)
class Adaptive(ServerOptimizer):
    """A step for every weight that is the smaller the more it moved before."""

    beta1: Share = 0.9
    tau: Rate = 1e-3

    def first(self) -> dict[str, float]:
        return {"m": 0.0, "v": self.tau**2}

    def move(self, delta: Tensor, kept: Tensors) -> tuple[Tensor, Tensors]:
        """m = β1 m + (1 - β1) Δ, w += η m / (√v + τ), without correction of the start (Reddi et al., alg. 2)."""
        m = self.beta1 * kept["m"] + (1 - self.beta1) * delta
        v = self.accumulated(kept["v"], delta.square())
        return self.lr * m / (v.sqrt() + self.tau), {"m": m, "v": v}

    @abstractmethod
    def accumulated(self, v: Tensor, square: Tensor) -> Tensor:
        """v of this round, from that of the last and Δ²."""


@dataclass(frozen=True)
class Adagrad(Adaptive):
    """FedAdagrad; the paper's experiments have no momentum in it."""

    beta1: Share = 0.0
    name: Literal["adagrad"] = "adagrad"

    def accumulated(self, v: Tensor, square: Tensor) -> Tensor:
        """v + Δ²."""
        return v + square


@dataclass(frozen=True)
class Yogi(Adaptive):
    """FedYogi."""

    beta2: Share = 0.99
    name: Literal["yogi"] = "yogi"

    def accumulated(self, v: Tensor, square: Tensor) -> Tensor:
        """v - (1 - β2) Δ² sign(v - Δ²)."""
        return v - (1 - self.beta2) * square * (v - square).sign()


@dataclass(frozen=True)
class Adam(Adaptive):
    """FedAdam."""

    beta2: Share = 0.99
    name: Literal["adam"] = "adam"

    def accumulated(self, v: Tensor, square: Tensor) -> Tensor:
        """β2 v + (1 - β2) Δ²."""
        return self.beta2 * v + (1 - self.beta2) * square


Optimizer = Momentum | Adagrad | Yogi | Adam
"""The server optimisers that a setting may be, told apart by their names."""


def moment(kind: str, name: str) -> str:
    """What is called so that an optimiser remembers of a weight."""
    return placed(MOMENTS, placed(kind, name))


def weights_of(net: nn.Module) -> Tensors:
    """The weights of a network that training moves, by all the names that its state has for them."""
    named = net.named_parameters(remove_duplicate=False)
    return {name: p.detach() for name, p in named if p.requires_grad and p.is_floating_point()}
