"""What truncation does to a network, as numbers to watch: those of the spectra, and the theorem's assumptions.

The convergence theorem of FedHM's journal version assumes that truncation changes weights by little (κσ1), that
clients' factors differ by little (κσ2), and that factors stay bounded (κUV). The smaller these are, the more the
theorem says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from potluck.parts.lowrank.decompose import Decomposition
from potluck.parts.lowrank.layers import Unrolled
from potluck.parts.lowrank.spectrum import effective_rank, kappa_sigma1, kappa_sigma2

Ranks = Mapping[str, int]


def diagnosis(
    decomposed: Mapping[str, Decomposition],
    layers: Mapping[str, Unrolled],
    ranks: Mapping[str, Ranks],  # by level, then by layer in factors
    joined: Mapping[str, int],  # how many clients of each level took part
) -> dict[str, Any]:
    """Effective rank, κσ1 and κσ2 per layer; rank and share of energy lost per level and layer.

    For a grouped convolution, the effective rank is the mean over its groups, and the rest are sums.
    """
    present = [level for level, count in joined.items() for _ in range(count)]
    found = {name: kappas(decomposed[name], [ranks[level].get(name) for level in present]) for name in layers}
    return {
        "effective_rank": {name: carried_by(decomposed[name], layer) for name, layer in layers.items()},
        "ranks": {level: dict(held) for level, held in ranks.items()},
        "lost_energy": {
            level: {name: lost_share(decomposed[name], rank) for name, rank in held.items()}
            for level, held in ranks.items()
        },
        "kappa_sigma1": {name: both[0] for name, both in found.items()},
        "kappa_sigma2": {name: both[1] for name, both in found.items()},
        "decomposed_exactly": sum(is_exact(decomposed[name], layer) for name, layer in layers.items()),
    }


def carried_by(decomposed: Decomposition, layer: Unrolled) -> float:
    """The effective rank of a layer's weight."""
    total = min(layer.rows, layer.columns)
    each = zip(decomposed.values, decomposed.energy.tolist(), strict=True)
    return fmean(effective_rank(values, energy, total) for values, energy in each)


def lost_share(decomposed: Decomposition, rank: int) -> float:
    """‖W - W_r‖²_F / ‖W‖²_F."""
    energy = float(decomposed.energy.sum())
    return float(decomposed.lost(rank).sum()) / energy if energy else 0.0


def kappas(decomposed: Decomposition, ranks: Sequence[int | None]) -> tuple[float, float]:
    """κσ1 and κσ2 of a layer, for clients with factors of these ranks; None stands for the whole layer."""
    if not ranks:
        return 0.0, 0.0
    full = max(decomposed.left.shape[-2:]) + max(decomposed.right.shape[-2:])  # beyond every value
    held = [full if rank is None else rank for rank in ranks]
    beyond = decomposed.lost(decomposed.values.shape[-1]).tolist()
    first = sum(kappa_sigma1(values, held, lost) for values, lost in zip(decomposed.values, beyond, strict=True))
    return first, sum(kappa_sigma2(values, held) for values in decomposed.values)


def is_exact(decomposed: Decomposition, layer: Unrolled) -> bool:
    """Whether all singular values are known."""
    return decomposed.values.shape[-1] == min(layer.rows, layer.columns)
