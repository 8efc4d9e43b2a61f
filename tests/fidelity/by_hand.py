"""The papers' equations again, slowly: plain loops and lists of indices, and nothing of Potluck's.

All numbers are float64. Where a paper says "the first channels" there is a list of numbers here, where it says "the
mean over those who have it" there are a sum and a count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")

Weights = dict[str, Tensor]
Places = dict[str, tuple[list[int], ...]]
Batch = tuple[Tensor, Tensor]


@dataclass
class Recipe:
    """How a client trains."""

    lr: float
    momentum: float = 0.9
    weight_decay: float = 0.01
    clip: float = 0.0
    milestones: tuple[int, ...] = ()

    def rate(self, round: int) -> float:
        """A tenth from each milestone on; rounds count from 0."""
        rate = self.lr
        for milestone in self.milestones:
            if round >= milestone:
                rate = rate / 10
        return rate


@dataclass
class Sent:
    """What a client sends, where in the server's tensors it belongs, and how much it counts."""

    tensors: Weights
    places: Places
    weight: float = 1.0


def grid(places: Iterable[list[int]]) -> tuple[Tensor, ...]:
    """Lists of indices, one for each dimension, as an index into a tensor."""
    return torch.meshgrid(*(torch.tensor(each) for each in places), indexing="ij")


def everywhere(weights: Weights) -> Places:
    """The places of whole tensors."""
    return {name: tuple(list(range(size)) for size in tensor.shape) for name, tensor in weights.items()}


def taken(state: Weights, places: Places) -> Weights:
    """The entries of the server's tensors at these places."""
    return {name: state[name][grid(at)].clone() if at else state[name].clone() for name, at in places.items()}


def only_rows(sent: Sent, names: Iterable[str], rows: Iterable[int]) -> Sent:
    """The same, but of these tensors only some rows."""
    rows = list(rows)
    tensors, places = dict(sent.tensors), dict(sent.places)
    for name in names:
        tensors[name] = torch.stack([tensors[name][row] for row in rows])
        places[name] = (rows, *places[name][1:])
    return Sent(tensors, places, sent.weight)


def mean_over_holders(state: Weights, updates: Iterable[Sent]) -> Weights:
    """Every entry's weighted mean over those who sent it; what nobody sent stays."""
    totals = {name: torch.zeros(tensor.shape, dtype=torch.float64) for name, tensor in state.items()}
    counts = {name: torch.zeros(tensor.shape, dtype=torch.float64) for name, tensor in state.items()}
    for update in updates:
        for name, tensor in update.tensors.items():
            at = grid(update.places[name]) if update.places[name] else ()
            totals[name][at] += update.weight * tensor
            counts[name][at] += update.weight
    found = {}
    for name, old in state.items():
        mean = totals[name] / counts[name].clamp(min=1e-300)
        mean = mean if old.is_floating_point() else mean.round()
        found[name] = torch.where(counts[name] > 0, mean, old.double()).to(old.dtype)
    return found


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """-log of the probability of the right class, one example after the other."""
    total = torch.zeros((), dtype=torch.float64)
    for row, target in zip(logits, targets.tolist(), strict=True):
        total = total + row.exp().sum().log() - row[target]
    return total / len(targets)


def masked(logits: Tensor, labels: Iterable[int]) -> Tensor:
    """Logits with 0 for the classes that a client does not have."""
    has = set(labels)
    columns = [logits[:, c] if c in has else torch.zeros_like(logits[:, c]) for c in range(logits.shape[1])]
    return torch.stack(columns, dim=1)


def batch_norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Every channel less its mean over the batch, over its standard deviation."""
    others = [dim for dim in range(x.dim()) if dim != 1]
    apart = x - x.mean(others, keepdim=True)
    along = [1, -1] + [1] * (x.dim() - 2)
    normal = apart / ((apart**2).mean(others, keepdim=True) + 1e-5).sqrt()
    return scale.reshape(along) * normal + shift.reshape(along)


def noted_norm(x: Tensor, scale: Tensor, shift: Tensor, statistics: Weights, name: str) -> Tensor:
    """Batch norm whose running statistics go a tenth of the way to those of this batch."""
    values = x.detach().transpose(0, 1).flatten(1)
    mean, spread, seen = (f"{name}.{kind}" for kind in STATISTICS)
    statistics[mean] = 0.9 * statistics[mean] + 0.1 * values.mean(1)
    statistics[spread] = 0.9 * statistics[spread] + 0.1 * values.var(1)
    statistics[seen] = statistics[seen] + 1
    return batch_norm(x, scale, shift)


def parted(state: Weights) -> tuple[Weights, Weights]:
    """What is trained, and the running statistics."""
    own = {name for name in state if name.endswith(STATISTICS)}
    return {name: state[name] for name in state if name not in own}, {name: state[name] for name in own}


def descend(
    weights: Weights,
    batches: Iterable[Batch],
    loss: Callable[[Weights, Batch], Tensor],
    recipe: Recipe,
    round: int = 0,
    undecayed: Iterable[str] = (),
) -> Weights:
    """g = clipped gradient + λ w, v ← μ v + g, w ← w - η v, with v = 0 at the start."""
    weights = {name: tensor.clone() for name, tensor in weights.items()}
    speed = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    for batch in batches:
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
        loss(leaves, batch).backward()
        slopes = {name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for name, leaf in leaves.items()}
        if recipe.clip:
            length = float(sum((slope**2).sum() for slope in slopes.values())) ** 0.5
            shorter = min(1.0, recipe.clip / (length + 1e-6))  # PyTorch's 1e-6, with which all authors clip
            slopes = {name: shorter * slope for name, slope in slopes.items()}
        for name in weights:
            decay = 0.0 if name in set(undecayed) else recipe.weight_decay
            speed[name] = recipe.momentum * speed[name] + slopes[name] + decay * weights[name]
            weights[name] = weights[name] - recipe.rate(round) * speed[name]
    return weights


def furthest(found: Weights, expected: Weights) -> float:
    """The largest difference of any two numbers; every tensor must be in both."""
    assert set(found) == set(expected)
    return max(float((found[name].double() - expected[name].double()).abs().max()) for name in expected)
