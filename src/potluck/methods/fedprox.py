"""FedProx: FedAvg whose clients are held near the network that they were sent.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks (MLSys 2020).

Each client minimises its own loss and μ/2 times the squared distance from what it was sent. So clients that hold
different examples drift less far apart.

Departures:
- The paper's clients stop at an inexact minimum, each as soon as it likes. Here everybody trains for as many epochs as
  the experiment says, as in the authors' code without stragglers.
- The mean is weighted by examples, as in FedAvg. The paper draws clients in proportion to their examples and takes the
  plain mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from potluck.core.goals.goal import Goal
from potluck.core.ranges import Factor
from potluck.core.types import Batch, Context, Job, Phase, Tensors
from potluck.parts.one_network import OneNetwork


@dataclass(frozen=True)
class FedProx(OneNetwork):
    """FedAvg whose clients stay near the network that they were sent."""

    paper: ClassVar[str] = "Li et al.: Federated Optimization in Heterogeneous Networks (MLSys 2020)"
    reduces_to_fedavg: ClassVar[bool] = False  # with mu = 0 it is

    mu: Factor = 0.01  # μ of the proximal term

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        return [Phase(partial(proximal_loss, ctx.task.goal, self.mu), job.payload)]


def proximal_loss(goal: Goal, mu: float, net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """F_k(w) + μ/2 ‖w - w_t‖² (FedProx, eq. 2); `extra` has w_t."""
    apart = [(p - extra[name]).square().sum() for name, p in net.named_parameters()]
    return goal(net, batch, extra) + mu / 2 * torch.stack(apart).sum()
