"""Any number of clients, each drawn from all training examples by its number alone, when it is asked for.

Nothing is stored for a client, so there may be millions of them, and more clients than examples. Inside a client no
example repeats; between clients draws are independent, so that clients share examples.

With `alpha` a client's labels are in proportions drawn from Dir(α), rounded to whole examples. Where it would hold more
of a label than there is, the other labels get the rest, in their proportions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from potluck.core.data import Holdings
from potluck.core.errors import ConfigError, DataError
from potluck.core.random import stream
from potluck.data.partitions.cover import holdings_by_client, require_clients, require_labels
from potluck.data.partitions.dirichlet import Alpha, apportion, draw_logits, require_alpha


@dataclass(frozen=True)
class Drawn:
    """`size` examples each, drawn when a client is asked for; clients share examples. Labels skewed by Dir(alpha)."""

    size: Annotated[int, Ge(1)] = 50
    alpha: Alpha | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"size is {self.size}, but a client needs at least 1 example")
        if self.alpha is not None:
            require_alpha(self.alpha)

    def __call__(
        self, targets: Tensor, clients: int, rng: torch.Generator, owners: Tensor | None = None
    ) -> DrawnHoldings:
        require_clients(clients)
        if self.size > len(targets):
            raise DataError(
                f"size is {self.size}, but there are {len(targets)} training examples, of which a client holds none "
                f"twice: ask for a size of at most {len(targets)}"
            )
        key = int(torch.randint(1 << 62, (), generator=rng))
        if self.alpha is None:
            return DrawnHoldings(key, clients, self.size, len(targets))
        require_labels(targets, "drawn")
        labels, label_of = torch.unique(targets, return_inverse=True)
        return DrawnHoldings(
            key, clients, self.size, len(targets), self.alpha, holdings_by_client(label_of, len(labels))
        )


@dataclass(frozen=True)
class DrawnHoldings:
    """Holdings that are drawn from `total` examples when they are asked for: the same ones whoever asks, and when."""

    key: int
    clients: int
    each: int
    total: int
    alpha: float | None = None
    by_label: Holdings | None = None  # the examples of every label that occurs, if labels are skewed

    def __len__(self) -> int:
        return self.clients

    def of(self, client: int) -> Tensor:
        """The examples this client holds."""
        rng = stream(self.key, client)
        if self.alpha is None or self.by_label is None:
            return distinct(self.each, self.total, rng)
        there = self.by_label.offsets.diff()
        counts = skewed_counts(self.each, there, draw_logits(self.alpha, tuple(there.shape), rng), rng)
        return torch.cat(
            [
                self.by_label.of(label)[distinct(int(counts[label]), int(there[label]), rng)]
                for label in counts.nonzero().flatten().tolist()
            ]
        )

    def size(self, client: int) -> int:
        """How many examples this client holds."""
        return self.each


def distinct(count: int, total: int, rng: torch.Generator) -> Tensor:
    """`count` different numbers below `total`, every choice equally likely.

    Shuffling all of them would do, but takes as long as there are many: numbers that were drawn before are ignored.
    """
    if 2 * count > total:
        return torch.randperm(total, generator=rng)[:count].clone()
    found: dict[int, None] = {}
    while len(found) < count:
        found.update(dict.fromkeys(torch.randint(total, (count,), generator=rng).tolist()))
    return torch.tensor(list(found)[:count])


def skewed_counts(size: int, there: Tensor, logits: Tensor, rng: torch.Generator) -> Tensor:
    """How many examples of each label: in the proportions softmax(logits), but never more than there are."""
    counts = torch.zeros_like(there)
    while (missing := size - int(counts.sum())) > 0:
        proportions = logits.masked_fill(counts == there, -torch.inf).softmax(0)
        counts = torch.minimum(counts + apportion(torch.tensor(missing), proportions, rng), there)
    return counts
