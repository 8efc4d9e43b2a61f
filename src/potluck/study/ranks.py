"""Ranks chosen from a trained network's spectra, beside those of FedHM's rule at the same cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from potluck.core.errors import ConfigError, ModelError
from potluck.core.types import Context, Level, Tensors
from potluck.methods.fedhm import FedHM
from potluck.parts.lowrank.allocate import Allocation, allocate, uniform
from potluck.parts.lowrank.budget import WHOLE
from potluck.parts.lowrank.prices import PriceList, Unit, price_list
from potluck.parts.lowrank.survey import Survey

STEPS = 1000  # of the paper's ratio, among which the largest that fits is found


@dataclass(frozen=True)
class RankChoice:
    """What fits a budget: ranks chosen from the spectra, and FedHM's own with the largest ratio that fits."""

    level: str
    budget: float
    total: float  # what the whole network costs
    gamma: float
    chosen: Allocation
    rule: Allocation

    def table(self) -> dict[str, Any]:
        """Everything, for other programs."""
        return {
            "level": self.level,
            "budget": self.budget,
            "total": self.total,
            "chosen": described(self.chosen),
            "rule": {"gamma": self.gamma, **described(self.rule)},
        }


def described(found: Allocation) -> dict[str, Any]:
    """An allocation as a table."""
    lost = found.lost / found.energy if found.energy else 0.0
    return {"first": found.first, "cost": found.cost, "lost_energy": lost, "ranks": found.ranks}


def choose_ranks(state: Tensors, levels: Sequence[Level], unit: Unit, method: FedHM, ctx: Context) -> list[RankChoice]:
    """For every level the ranks that a share of the whole network's cost buys, in two ways."""
    open_to_all = replace(method, share="parameters", svd="exact")  # any layer may be the first in factors
    found, own = open_to_all.survey(ctx), replace(method, share="rank").survey(ctx)
    missing = [name for name in found.layers if f"{name}.weight" not in state]
    if missing or not found.layers:
        raise ConfigError(
            f"this run has no whole network to choose ranks for: it lacks {', '.join(missing[:3]) or 'any layer'}; "
            "try a run of fedavg, heterofl or fedhm"
        )
    prices = price_list(unit, ctx.build(WHOLE), found, ctx.task.example[0], ctx.task.train.batch_size)
    spectra = {
        name: each.values.double().square() for name, each in open_to_all.decomposed(state, found.layers, ctx).items()
    }
    return [choice(level, unit, spectra, own, prices) for level in levels]


def choice(level: Level, unit: Unit, spectra: Mapping[str, Tensor], own: Survey, prices: PriceList) -> RankChoice:
    """What one level's share buys."""
    budget = level.ratio * prices.total
    about = f"level '{level.name}' has a share of {level.ratio:g} of the {unit}"
    rules = ((step / STEPS, uniform(spectra, own.layers, prices, step / STEPS)) for step in range(STEPS, 0, -1))
    fitting = next((each for each in rules if each[1].cost <= budget), None)
    try:
        chosen = allocate(spectra, prices, budget)
    except ModelError as error:
        raise ConfigError(f"{about}: {error}") from error
    if fitting is None:
        raise ConfigError(
            f"{about}, {budget:,.6g} of {prices.total:,.6g}, less than the layers that FedHM leaves whole; choose a "
            "larger one, or another rho"
        )
    return RankChoice(level.name, budget, prices.total, fitting[0], chosen, fitting[1])
