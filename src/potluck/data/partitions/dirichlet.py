"""Skewed labels and sizes: each class is divided over the clients in proportions drawn from Dir(α).

Where others draw again until every client has enough, which need not end, clients that have too
little are topped up: see `level_up`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Interval
from torch import Tensor

from potluck.core.data import Holdings
from potluck.core.errors import ConfigError
from potluck.data.partitions.cover import boundaries, holdings_by_client, require_examples, require_labels

Alpha = Annotated[float, Interval(gt=0, lt=math.inf)]


@dataclass(frozen=True)
class Dirichlet:
    """Each class is divided by proportions from Dir(alpha): 0.1 is skewed, 100 nearly IID."""

    alpha: Alpha
    min_size: Annotated[int, Ge(1)] = 2

    def __post_init__(self) -> None:
        require_alpha(self.alpha)
        if self.min_size < 1:
            raise ConfigError(f"min_size is {self.min_size}, but a client needs at least 1 example")

    def __call__(self, targets: Tensor, clients: int, rng: torch.Generator, owners: Tensor | None = None) -> Holdings:
        require_labels(targets, "dirichlet")
        require_examples(targets, clients, self.min_size)
        client_of = torch.empty_like(targets)
        for label in torch.unique(targets):
            members = (targets == label).nonzero().flatten()
            members = members[torch.randperm(len(members), generator=rng)]
            proportions = draw_logits(self.alpha, (clients,), rng).softmax(0)
            client_of[members] = torch.repeat_interleave(apportion(torch.tensor(len(members)), proportions, rng))
        return holdings_by_client(level_up(client_of, targets, clients, self.min_size, rng), clients)


def require_alpha(alpha: float) -> None:
    """Refuse what no Dirichlet distribution has as its parameter."""
    if not 0 < alpha < math.inf:
        raise ConfigError(f"alpha is {alpha}, but a Dirichlet distribution needs a finite number above 0")


def draw_logits(alpha: float, shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    """Numbers whose softmax, over any of them, is a draw from the symmetric Dir(α).

    They are logarithms of gamma variates, G(α) = G(α + 1) U^(1/α): for a small α the variates
    themselves are all too small for a float.
    """
    alpha = max(alpha, 1e-300)  # below it everything goes to one part all the same, but log U / α overflows
    gamma = torch._standard_gamma(torch.full(shape, alpha + 1, dtype=torch.float64), rng)
    uniform = 1 - torch.rand(shape, generator=rng, dtype=torch.float64)  # in (0, 1]: its logarithm is finite
    return gamma.log() + uniform.log() / alpha


def apportion(totals: Tensor, proportions: Tensor, rng: torch.Generator) -> Tensor:
    """Whole numbers in these proportions that add up to the totals: differences of the rounded running sum.

    The sum runs in a random order: in the order of the clients, rounding would favour the same ones in every class.
    """
    order = torch.rand(proportions.shape, generator=rng).argsort(-1)
    ends = (proportions.gather(-1, order).cumsum(-1) * totals.unsqueeze(-1)).round().long()
    counts = ends.diff(prepend=torch.zeros_like(ends[..., :1]))
    return torch.zeros_like(counts).scatter(-1, order, counts)


def level_up(client_of: Tensor, targets: Tensor, clients: int, least: int, rng: torch.Generator) -> Tensor:
    """Every example's client after those with fewer than `least` were topped up by the largest ones.

    The largest clients give until all that is missing is there, each down to one common size, which
    examples at random; these are dealt class by class to those in need, lowest number first, so that
    a top-up adds few classes.
    """
    sizes = client_of.bincount(minlength=clients)
    missing = (least - sizes).clamp(min=0)
    gifts = excess(sizes, int(missing.sum()))
    shuffled = torch.randperm(len(client_of), generator=rng)
    by_client = shuffled[client_of[shuffled].argsort(stable=True)]
    rank = torch.arange(len(client_of)) - boundaries(sizes)[client_of[by_client]]
    given = by_client[rank < gifts[client_of[by_client]]]
    levelled = client_of.clone()
    levelled[given[targets[given].argsort(stable=True)]] = torch.repeat_interleave(missing)
    return levelled


def excess(sizes: Tensor, wanted: int) -> Tensor:
    """How much each of these sizes gives so that `wanted` comes together and the largest are cut level.

    >>> excess(torch.tensor([9, 2, 7, 0]), 5)
    tensor([4, 0, 1, 0])
    """
    low, high = 0, int(sizes.max())
    while low < high:  # the lowest common size that still leaves `wanted` or less above it
        middle = (low + high) // 2
        if int((sizes - middle).clamp(min=0).sum()) > wanted:
            low = middle + 1
        else:
            high = middle
    gifts = (sizes - low).clamp(min=0)
    at_the_cut = (sizes >= low).nonzero().flatten()
    gifts[at_the_cut[: wanted - int(gifts.sum())]] += 1
    return gifts
