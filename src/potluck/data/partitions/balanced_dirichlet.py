"""Skewed labels, equal sizes: the partition of FedDF's released code, which FedHM used.

1. The shuffled examples are cut into slices, one for every ten clients, in proportion to their number.
2. Inside a slice the classes are divided one after the other by Dir(α) over those of its clients
   that hold less than the slice's mean so far (setting the others' proportions to zero and
   normalising is the same distribution). The slice is drawn again until every client has at least
   half of the mean.
3. All clients' lists are put one after the other and cut into equal consecutive parts: so a client
   can straddle two lists, and sizes differ by one at most.

Departures: the code draws again without end, which for a small α or few classes may never stop;
here a slice is drawn at most `DRAWS` times, and the draw with the largest smallest client is used.
Examples that do not divide evenly are spread, one each, where the code leaves them out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.core.data import Holdings
from potluck.data.partitions.cover import boundaries, even_sizes, require_examples, require_labels
from potluck.data.partitions.dirichlet import Alpha, apportion, draw_logits, require_alpha

GROUP = 10
DRAWS = 300


@dataclass(frozen=True)
class BalancedDirichlet:
    """Labels skewed by Dir(alpha), all clients of one size: FedDF's variant, which FedHM used."""

    alpha: Alpha

    def __post_init__(self) -> None:
        require_alpha(self.alpha)

    def __call__(self, targets: Tensor, clients: int, rng: torch.Generator, owners: Tensor | None = None) -> Holdings:
        require_labels(targets, "balanced-dirichlet")
        require_examples(targets, clients)
        seats = boundaries(even_sizes(len(targets), clients))
        groups = -(-clients // GROUP)
        present = (torch.arange(groups * GROUP) < clients).view(groups, GROUP)
        labels, label_of = torch.unique(targets, return_inverse=True)

        shuffled = torch.randperm(len(targets), generator=rng)
        group_of = torch.repeat_interleave(seats[torch.arange(groups + 1).mul(GROUP).clamp(max=clients)].diff())
        cell = group_of * len(labels) + label_of[shuffled]
        table = cell.bincount(minlength=groups * len(labels)).view(groups, len(labels))

        lists = torch.arange(groups * GROUP).view(groups, 1, GROUP).expand(-1, len(labels), -1)
        counts = draw_acceptable(table, present, self.alpha, rng)
        list_of = lists.flatten().repeat_interleave(counts.flatten())  # of the examples by group, then label
        return Holdings(shuffled[cell.argsort(stable=True)][list_of.argsort(stable=True)], seats)


def draw_acceptable(table: Tensor, present: Tensor, alpha: float, rng: torch.Generator) -> Tensor:
    """Counts for (group, label, client), groups redrawn until their smallest client has half of the mean."""
    enough = table.sum(1) // present.sum(1) // 2
    counts = draw_counts(table, present, alpha, rng)
    for _ in range(DRAWS - 1):
        poor = (smallest(counts, present) < enough).nonzero().flatten()
        if len(poor) == 0:
            break
        again = draw_counts(table[poor], present[poor], alpha, rng)
        better = smallest(again, present[poor]) > smallest(counts[poor], present[poor])
        counts[poor[better]] = again[better]
    return counts


def draw_counts(table: Tensor, present: Tensor, alpha: float, rng: torch.Generator) -> Tensor:
    """One draw of the counts for (group, label, client) from the counts for (group, label)."""
    mean = table.sum(1, keepdim=True) / present.sum(1, keepdim=True)
    held = torch.zeros_like(present, dtype=torch.long)
    counts = []
    for sizes in table.T:
        still_open = present & (held < mean)
        logits = draw_logits(alpha, tuple(present.shape), rng).masked_fill(~still_open, -torch.inf)
        # nobody is open only when nothing is left to divide: the softmax of nothing is then as good as 0
        counts.append(apportion(sizes, logits.softmax(1).nan_to_num(0), rng))
        held = held + counts[-1]
    return torch.stack(counts, dim=1)


def smallest(counts: Tensor, present: Tensor) -> Tensor:
    """The size of every group's smallest client."""
    sizes = counts.sum(1)
    return sizes.masked_fill(~present, int(sizes.max()) + 1).amin(1)
