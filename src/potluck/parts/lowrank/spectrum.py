"""What the singular values of a layer say about low rank training: numbers to watch from round to round."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def effective_rank(values: Tensor, energy: float, total: int) -> float:
    """exp(-Σ_i p_i ln p_i) with p_i = σ_i² / Σ_j σ_j² (Roy and Vetterli 2007, of energies): how many values carry M.

    Where only the leading ones of `total` are known, the rest of the energy counts as spread evenly beyond them,
    which makes it an upper bound. A zero matrix has rank 0.

    >>> effective_rank(torch.ones(4), 4.0, 4)
    4.0
    """
    known = values.double().square()
    unknown = total - len(known)
    rest = max(energy - known.sum().item(), 0.0) / unknown if unknown else 0.0
    energies = torch.cat([known, torch.full((unknown,), rest, dtype=torch.float64)])
    if not energies.sum() > 0:
        return 0.0
    shares = energies / energies.sum()
    rank: float = torch.special.entr(shares).sum().exp().item()
    return rank


def kappa_sigma1(values: Tensor, ranks: Sequence[int], lost: float = 0.0) -> float:
    """‖(1/P Σ_p √Σ_{r_p})² - Σ‖²_F = Σ_i σ_i² (1 - h_i²)² (FedHM journal, eq. 5), h_i: the share of ranks that reach i.

    How far the mean of the factors is from the model they are cut from. `lost` is the energy beyond the known values.
    A rank above their number counts as full and holds all of what is beyond; so the known values must reach as far as
    every other rank.
    """
    holders = shares_holding(len(values), ranks)
    beyond = sum(rank > len(values) for rank in ranks) / len(ranks)
    missed = values.double().square() @ (1 - holders.square()).square()
    return missed.item() + lost * (1 - beyond**2) ** 2


def kappa_sigma2(values: Tensor, ranks: Sequence[int]) -> float:
    """max_p ‖1/P Σ_i √Σ_{r_i} - √Σ_{r_p}‖²_F (FedHM journal, eq. 5).

    How far one participant's factors are from their mean, in the known values: exact if no rank is above their
    number, else a lower bound.
    """
    holders = shares_holding(len(values), ranks)
    own = torch.arange(len(values)) < torch.tensor(ranks)[:, None]
    return ((holders - own.double()).square() @ values.double()).max().item()


def shares_holding(count: int, ranks: Sequence[int]) -> Tensor:
    """h_i = |{p: r_p ≥ i}| / P for i = 1 … count."""
    return (torch.arange(count) < torch.tensor(ranks)[:, None]).double().mean(0)
