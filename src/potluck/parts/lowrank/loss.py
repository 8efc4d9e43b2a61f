"""The loss of a network in factors: its labels, small products, and what it knew before training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from potluck.core.goals.goal import Goal
from potluck.core.inputs import Inputs, arguments, call
from potluck.core.names import inside
from potluck.core.types import Batch, Tensors
from potluck.parts.labels import Fill, masked_logits
from potluck.parts.lowrank.frobenius import frobenius_penalty
from potluck.parts.lowrank.layers import Unrolled

TEACHER = "teacher"


@dataclass(frozen=True)
class HybridLoss:
    """Masked cross-entropy + λ Σ ½ ‖A B‖²_F + μ T² KL(teacher ‖ student) (FedHM, sec. 3.3; v1, sec. 3.4)."""

    goal: Goal
    fill: Fill | None  # what the logits of classes that a client lacks become, if anything
    decay: float
    layers: tuple[tuple[str, Unrolled], ...]  # those in factors
    distill: float
    temperature: float

    def __call__(self, net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
        inputs, targets = batch
        logits = self.goal.outputs(call(net, inputs))
        seen = logits if self.fill is None else masked_logits(logits, extra["mask"], self.fill)
        loss = self.goal.loss(seen, targets)
        if self.layers and self.decay:
            loss = loss + self.decay * frobenius_penalty(net, dict(self.layers))
        teacher = inside(TEACHER, extra)
        if teacher:
            known = self.goal.outputs(answers(net, teacher, inputs))
            loss = loss + self.distill * softened_divergence(logits, known, self.temperature)
        return loss


def answers(net: nn.Module, weights: Tensors, inputs: Inputs) -> Any:
    """The network's output with other weights, in evaluation."""
    net.eval()
    try:
        with torch.no_grad():
            return functional_call(net, weights, *arguments(inputs), tie_weights=False)
    finally:
        net.train()


def softened_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² KL(softmax(z_t / T) ‖ softmax(z_s / T)), the mean over examples."""
    student, teacher = (logits.flatten(0, -2) / temperature for logits in (student, teacher))
    apart = F.kl_div(student.log_softmax(-1), teacher.log_softmax(-1), reduction="batchmean", log_target=True)
    return temperature**2 * apart
