"""What all partitions share: from "who owns each example" to holdings, and the checks at the border."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from potluck.core.data import AnyHoldings, Holdings
from potluck.core.errors import DataError

NOBODY = -1


class Partition(Protocol):
    """A rule that gives training examples to clients; its fields are its options."""

    def __call__(
        self, targets: Tensor, clients: int, rng: torch.Generator, owners: Tensor | None = None
    ) -> AnyHoldings:
        """Who holds what. `owners` is who each example came from, for data that came from people."""


def holdings_by_client(client_of: Tensor, clients: int) -> Holdings:
    """Holdings from every example's client; an example of `NOBODY` is left out.

    >>> holdings_by_client(torch.tensor([1, 0, NOBODY, 1]), clients=2).of(1)
    tensor([0, 3])
    """
    order = client_of.argsort(stable=True)
    used = client_of != NOBODY
    sizes = client_of[used].bincount(minlength=clients)
    return Holdings(order[len(order) - int(used.sum()) :], boundaries(sizes))


def as_holdings(dealt: object, clients: int, total: int) -> AnyHoldings:
    """Holdings from what a partition gave: holdings, or the numbers of every client's examples.

    >>> as_holdings([[0, 2], [1]], clients=2, total=3).of(0)
    tensor([0, 2])
    """
    if callable(getattr(dealt, "of", None)) and callable(getattr(dealt, "size", None)):
        holdings: AnyHoldings = dealt  # type: ignore[assignment]
    else:
        holdings = Holdings.of_lists(numbered(dealt, total))
    if len(holdings) != clients:
        raise DataError(f"the partition gives examples to {len(holdings)} clients, but clients is {clients}")
    return holdings


def numbered(dealt: object, total: int) -> list[Tensor]:
    """The numbers of every client's examples, checked."""
    try:
        each = list(dealt)  # type: ignore[call-overload]
    except TypeError as error:
        raise DataError(
            f"the partition gives a {type(dealt).__name__}, but it should give a list with the numbers of every "
            "client's examples"
        ) from error
    lists = [numbers_of(one, client) for client, one in enumerate(each)]
    if any(one.dtype is torch.bool for one in lists):
        raise DataError(
            "the partition gives truth values, but it should give the numbers of every client's examples; "
            "torch.nonzero makes these of those"
        )
    every = torch.cat(lists) if lists else torch.empty(0)
    wrong = every[(every < 0) | (every >= total) | (every != every.long())]
    if len(wrong):
        raise DataError(
            f"the partition gives example {wrong[0].item()} to a client, but they are numbered from 0 to {total - 1}"
        )
    return [one.long() for one in lists]


def numbers_of(one: object, client: int) -> Tensor:
    """The numbers that are given for one client."""
    try:
        return torch.as_tensor(one).reshape(-1)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"the partition gives client {client} a {type(one).__name__}, but it should give it the numbers of its "
            f"examples ({error})"
        ) from error


def boundaries(sizes: Tensor) -> Tensor:
    """Where parts of these sizes begin and end when they lie one after the other."""
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def even_sizes(total: int, parts: int) -> Tensor:
    """`total` in `parts` whole sizes that differ by one at most, the larger ones first.

    >>> even_sizes(10, 4)
    tensor([3, 3, 2, 2])
    """
    return torch.full((parts,), total // parts) + (torch.arange(parts) < total % parts)


def dropped(holdings: Holdings, total: int) -> int:
    """How many of `total` examples no client holds."""
    return total - len(torch.unique(holdings.order))


def require_clients(clients: int) -> None:
    """Refuse a federation of nobody."""
    if clients < 1:
        raise DataError(f"clients is {clients}, but a federation needs at least 1")


def require_examples(targets: Tensor, clients: int, each: int = 1) -> None:
    """Refuse more clients than there are examples for."""
    require_clients(clients)
    if len(targets) < clients * each:
        raise DataError(
            f"{clients} clients need at least {each} of the {len(targets)} training examples each: "
            f"ask for at most {len(targets) // each} clients"
        )


def require_labels(targets: Tensor, partition: str) -> None:
    """Refuse targets that are not one class per example."""
    if targets.dim() != 1 or targets.is_floating_point():
        found = "are no whole numbers" if targets.dim() == 1 else f"have the shape {tuple(targets.shape)}"
        raise DataError(f"partition {partition!r} needs one label per example, but the targets {found}: use 'iid'")


def require_classes(present: int, clients: int, wanted: int, field: str) -> None:
    """Refuse more classes per client than there are, and too few places for all classes."""
    if wanted > present:
        raise DataError(f"{field} is {wanted}, but the training examples have only {present} classes")
    if clients * wanted < present:
        raise DataError(
            f"{clients} clients with {field} = {wanted} have {clients * wanted} places for {present} classes: "
            f"ask for at least {-(-present // wanted)} clients or a larger {field}"
        )
