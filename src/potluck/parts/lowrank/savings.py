"""Refusing a level whose ratio is below 1 but which would train the whole network all the same."""

from __future__ import annotations

import math
from collections.abc import Iterable

from potluck.core.errors import ModelError
from potluck.core.types import Level
from potluck.parts.lowrank.layers import Unrolled
from potluck.parts.lowrank.survey import USUAL, Survey

NO_RANK = "factors of any rank would be no smaller"
SHOWN = 3  # layers that an error names for each reason


def require_savings(found: Survey, levels: Iterable[Level], by_rank: bool = True) -> None:
    """Refuse levels below 1 if no layer can be smaller; where ratios are ranks, also one at which none is smaller."""
    largest = max(map(saving_ratio, found.layers.values()), default=0.0)
    for level in levels:
        if level.ratio == 1 or (largest and not by_rank) or found.ranks(level.ratio):
            continue
        told = f"level '{level.name}' (ratio {level.ratio:g}) would train the whole network"
        if not largest:
            more = "name layers in factor, or " if any(why.startswith(USUAL) for why in found.whole.values()) else ""
            raise ModelError(
                f"{told}: no layer of it can be put into factors ({obstacles(found)}); {more}choose another method"
            )
        raise ModelError(
            f"{told}: factors of such a rank are no smaller than the layers; choose a ratio of at most "
            f"{math.floor(1000 * largest) / 1000 or largest:g}, or share = 'parameters', with which it is a share of "
            "the network's size"
        )


def saving_ratio(layer: Unrolled) -> float:
    """The ratio of the largest rank r with r (rows + columns) < rows · columns; 0 if there is none.

    >>> saving_ratio(Unrolled(64, 64, 1, 1, 1, True)), saving_ratio(Unrolled(8, 1, 1, 1, 1, True))
    (0.484375, 0.0)
    """
    rank = (layer.rows * layer.columns - 1) // (layer.rows + layer.columns)
    return rank * layer.groups / layer.outputs


def obstacles(found: Survey) -> str:
    """Why layers stay whole, with a few of them for each reason."""
    layers: dict[str, list[str]] = {}
    for name, reason in {**found.whole, **dict.fromkeys(found.layers, NO_RANK)}.items():
        layers.setdefault(reason, []).append(name)
    told = [f"{shortened(names)}: {reason}" for reason, names in layers.items()]
    return "; ".join(told) or "it has no linear layer and no convolution in two dimensions"


def shortened(names: list[str]) -> str:
    """The first few names.

    >>> shortened(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
