"""How good a network is on examples nobody trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from potluck.core.data import Examples
from potluck.core.types import Goal

Score = dict[str, float]
"""Measures by name; `accuracy` and `loss` (mean cross-entropy) are always among them."""

Sums = dict[str, tuple[float, int]]
"""What is averaged: a sum and how many it is the sum of."""


@dataclass(frozen=True)
class LocalTest:
    """Every test example as one client's: which classes that client has, and whether there is such a client."""

    classes: Tensor  # (examples, classes), true where the example's client has the class in its training data
    owned: Tensor  # (examples,)


@torch.no_grad()
def evaluate(
    net: nn.Module, examples: Examples, goal: Goal = "classes", local: LocalTest | None = None, batch_size: int = 100
) -> Score:
    """Score a network in evaluation mode on all examples."""
    net.eval()
    totals: Sums = {}
    for index in torch.split(torch.arange(len(examples)), batch_size):
        inputs, targets = examples.take(index)
        logits = net(inputs)
        sums = sums_of(logits, inputs, targets, goal)
        if local is not None:
            sums["local_accuracy"] = local_sums(logits, targets, local.classes[index], local.owned[index])
        for name, (value, count) in sums.items():
            before, counted = totals.get(name, (0.0, 0))
            totals[name] = before + value, counted + count
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
