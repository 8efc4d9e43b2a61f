"""How good a network is on examples nobody trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from potluck.core.data import Examples
from potluck.core.logits import logits_of
from potluck.core.types import Goal, Task, Tensors

Score = dict[str, float]
"""Measures by name; `accuracy` and `loss` (mean cross-entropy) are always among them."""

Sums = dict[str, tuple[float, int]]
"""What is averaged: a sum and how many it is the sum of."""


MOST_EXAMPLES, MOST_LOGITS = 500, 1 << 22  # of a batch that is scored: texts have many logits per example


@dataclass(frozen=True)
class LocalTest:
    """Every test example as one client's: which classes that client has, and whether there is such a client."""

    classes: Tensor  # (examples, classes), true where the example's client has the class in its training data
    owned: Tensor  # (examples,)


@torch.no_grad()
def sums_over(
    net: nn.Module, examples: Examples, chosen: Tensor, goal: Goal, local: LocalTest | None, batch_size: int
) -> Sums:
    """What some of the examples add to the score of a network."""
    net.eval()
    totals: Sums = {}
    device = next((tensor.device for tensor in (*net.parameters(), *net.buffers())), torch.device("cpu"))
    for index in torch.split(chosen, batch_size):
        inputs, targets = (each.to(device) for each in examples.take(index))
        logits = logits_of(net(inputs))
        sums = sums_of(logits, inputs, targets, goal)
        if local is not None:
            has, owned = local.classes[index].to(device), local.owned[index].to(device)
            sums["local_accuracy"] = local_sums(logits, targets, has, owned)
        totals = added(totals, sums)
    return totals


def batch_size(task: Task) -> int:
    """How many examples are scored at a time."""
    return max(1, min(MOST_EXAMPLES, MOST_LOGITS // (task.classes * task.example[1].numel())))


def as_tensors(sums: Sums) -> Tensors:
    """Sums as named tensors, for the wire."""
    return {name: torch.tensor([value, count], dtype=torch.float64) for name, (value, count) in sums.items()}


def from_tensors(tensors: Tensors) -> Sums:
    """Sums again."""
    return {name: (float(pair[0]), int(pair[1])) for name, pair in tensors.items()}


def added(one: Sums, other: Sums) -> Sums:
    """Two sums as one."""
    total = dict(one)
    for name, (value, count) in other.items():
        before, counted = total.get(name, (0.0, 0))
        total[name] = before + value, counted + count
    return total


def means_of(totals: Sums, goal: Goal) -> Score:
    """The score that sums over all examples give."""
    means = {name: value / count for name, (value, count) in totals.items() if count}
    return {**means, **perplexities(means, goal)}


def sums_of(logits: Tensor, inputs: Tensor, targets: Tensor, goal: Goal) -> Sums:
    """Right answers and cross-entropy of a batch, over all targets and, where some were hidden, over those."""
    right = logits.argmax(-1) == targets
    losses = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none").view(targets.shape)
    sums = {"accuracy": (float(right.sum()), targets.numel()), "loss": (float(losses.double().sum()), targets.numel())}
    if goal == "masked-tokens":
        hidden = inputs != targets
        count = int(hidden.sum())
        sums["masked_accuracy"] = float(right[hidden].sum()), count
        sums["masked_loss"] = float(losses[hidden].double().sum()), count
        sums["paper_perplexity"] = heterofl_perplexity(losses), len(losses)
    return sums


def heterofl_perplexity(losses: Tensor) -> float:
    """Σ over windows of exp(mean cross-entropy of the window): HeteroFL averages exponentials, over all positions."""
    return float(losses.double().mean(1).exp().sum())


def local_sums(logits: Tensor, targets: Tensor, classes: Tensor, owned: Tensor) -> tuple[float, int]:
    """Right answers when each client only chooses among its classes: absent ones have logit 0 (HeteroFL, Local)."""
    right = logits.masked_fill(~classes, 0.0).argmax(-1) == targets
    return float(right[owned].sum()), int(owned.sum())


def perplexities(means: Score, goal: Goal) -> Score:
    """exp(mean cross-entropy), of all targets and of the hidden ones alone."""
    if goal == "classes":
        return {}
    found = {"perplexity": math.exp(means["loss"])}
    if "masked_loss" in means:
        found["masked_perplexity"] = math.exp(means["masked_loss"])
    return found
