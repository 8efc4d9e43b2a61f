"""The loss of a network in factors: its labels, small products, and what it knew before training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from potluck.core.fit import cross_entropy
from potluck.core.logits import logits_of
from potluck.core.names import inside
from potluck.core.types import Batch, Tensors
from potluck.parts.labels import Masking, masked_logits
from potluck.parts.lowrank.frobenius import frobenius_penalty
from potluck.parts.lowrank.layers import Unrolled

TEACHER = "teacher"


@dataclass(frozen=True)
class HybridLoss:
    """Masked cross-entropy + λ Σ ½ ‖A B‖²_F + μ T² KL(teacher ‖ student) (FedHM, sec. 3.3; v1, sec. 3.4)."""

    masking: Masking
    decay: float
    layers: tuple[tuple[str, Unrolled], ...]  # those in factors
    distill: float
    temperature: float

    def __call__(self, net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
        inputs, targets = batch
        logits = logits_of(net(inputs))
        seen = logits if self.masking == "off" else masked_logits(logits, extra["mask"], self.masking)
        loss = cross_entropy(seen, targets)
        if self.layers and self.decay:
            loss = loss + self.decay * frobenius_penalty(net, dict(self.layers))
        teacher = inside(TEACHER, extra)
        if teacher:
            loss = loss + self.distill * softened_divergence(logits, answers(net, teacher, inputs), self.temperature)
        return loss


def answers(net: nn.Module, weights: Tensors, inputs: Tensor) -> Tensor:
    """The network's logits with other weights, in evaluation."""
    net.eval()
    try:
        with torch.no_grad():
            return logits_of(functional_call(net, weights, (inputs,), tie_weights=False))
    finally:
        net.train()


def softened_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² KL(softmax(z_t / T) ‖ softmax(z_s / T)), the mean over examples."""
    student, teacher = (logits.flatten(0, -2) / temperature for logits in (student, teacher))
    apart = F.kl_div(student.log_softmax(-1), teacher.log_softmax(-1), reduction="batchmean", log_target=True)
    return temperature**2 * apart
