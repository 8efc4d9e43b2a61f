"""Ranks that fit a budget: a level's ratio is the share of the whole network's cost that its devices can carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import nn

from potluck.core.errors import ModelError
from potluck.core.names import placed
from potluck.core.types import Context, Level, Tensors
from potluck.parts.lowrank.allocate import Allocation, allocate
from potluck.parts.lowrank.cache import KEPT
from potluck.parts.lowrank.decompose import Decomposition
from potluck.parts.lowrank.prices import Price, PriceList, price_list
from potluck.parts.lowrank.survey import Survey

Share = Literal["rank", "parameters", "macs", "bytes", "seconds"]
"""What a level's ratio is a share of."""

MEASURED = placed(KEPT, "seconds")
WHOLE = Level("whole", 1.0)  # the network that every rank is a part of


def fitted_ranks(
    share: Share, level: Level, decomposed: Mapping[str, Decomposition], state: Tensors, found: Survey, ctx: Context
) -> Allocation:
    """The ranks that lose the least energy among those that a level can carry."""
    prices = prices_of(share, state, found, ctx)
    spectra = {name: each.values.double().square() for name, each in decomposed.items()}
    try:
        return allocate(spectra, prices, level.ratio * prices.total)
    except ModelError as error:
        raise ModelError(f"level '{level.name}' has a share of {level.ratio:g} of the {share}: {error}") from error


def prices_of(share: Share, state: Tensors, found: Survey, ctx: Context) -> PriceList:
    """What layers cost: counted, or as it was measured when the run began."""
    if share == "rank":
        raise ValueError("a rank has no price")
    if share == "seconds":
        (fixed, *_), *rows = state[MEASURED].tolist()
        return PriceList(fixed, {name: Price(*row) for name, row in zip(found.layers, rows, strict=True)})
    return ctx.memo.latest(
        (prices_of, share),
        (found,),
        lambda: price_list(share, ctx.build(WHOLE), found, ctx.task.example[0], ctx.task.train.batch_size),
    )


def measured_prices(net: nn.Module, found: Survey, ctx: Context) -> Tensors:
    """What layers take on this machine, for the server's state, on which alone ranks then depend."""
    prices = price_list("seconds", net, found, ctx.task.example[0], ctx.task.train.batch_size)
    rows = [(price.whole, price.base, price.per_rank) for price in prices.layers.values()]
    return {MEASURED: torch.tensor([(prices.fixed, 0.0, 0.0), *rows], dtype=torch.float64)}
