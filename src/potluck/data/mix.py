"""Mixes: which share of the devices is of which level.

A mix is HeteroFL's mode string ("a2-b8": two parts a, eight parts b), or shares by level, whose
keys are names of levels or their ratios ({1.0: 0.25, 0.25: 0.75}), or None for equal shares.
Shares that are all whole numbers are weights, of any sum; otherwise they are fractions and must
add up to 1. A level that is not mentioned gets no device.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import torch
from torch import Tensor

from potluck.core.errors import ConfigError
from potluck.core.types import Level

Mix = str | dict[str | float, float] | None

LETTERS = {"a": 1.0, "b": 1 / 2, "c": 1 / 4, "d": 1 / 8, "e": 1 / 16}
"""The ratios of HeteroFL's level letters."""

HUGE = 1e300  # no share is, and sums of such may overflow


def parse_mix(mode: str) -> dict[str, float]:
    """A mode string's shares by letter.

    >>> parse_mix("a2-b8")
    {'a': 0.2, 'b': 0.8}
    """
    parts = [re.fullmatch(r"([a-e])([0-9]{1,9})", part) for part in mode.split("-")]
    if not all(parts) or len({part[1] for part in parts if part}) < len(parts):
        raise ConfigError(f"mix is {mode!r}, but a mode string is different letters a to e with weights, as in 'a2-b8'")
    weights = {part[1]: int(part[2]) for part in parts if part}
    return dict(zip(weights, fractions(weights.values()), strict=True))


def fractions(shares: Iterable[float]) -> list[float]:
    """Shares as fractions of 1: whole numbers are weights, anything else must add up to 1."""
    shares = list(shares)
    total = math.fsum(shares) if all(abs(share) < HUGE for share in shares) else math.inf
    if not all(share >= 0 for share in shares) or not 0 < total < math.inf:
        raise ConfigError(f"mix has the shares {shares}, but shares are 0 or more and at least one is above 0")
    weights = all(float(share).is_integer() for share in shares)
    if not weights and not math.isclose(total, 1, abs_tol=1e-6):
        raise ConfigError(
            f"mix has the shares {shares}, which add up to {total:g}: fractions must add up to 1 (or use whole weights)"
        )
    return [share / total for share in shares]


def shares_of(mix: Mix, levels: tuple[Level, ...]) -> Tensor:
    """Every level's fraction of the devices, in the order of the levels."""
    if mix is None:
        return torch.full((len(levels),), 1 / len(levels), dtype=torch.float64)
    shares = parse_mix(mix) if isinstance(mix, str) else mix
    where = [level_index(key, levels) for key in shares]
    if len(set(where)) < len(where):
        raise ConfigError(f"mix is {mix!r}, which gives a level two shares: name every level once")
    result = torch.zeros(len(levels), dtype=torch.float64)
    result[where] = torch.tensor(fractions(shares.values()), dtype=torch.float64)
    return result


def level_index(key: str | float, levels: tuple[Level, ...]) -> int:
    """The level that a mix means by this key: its name, else its ratio, else HeteroFL's letter for that ratio."""
    for index, level in enumerate(levels):
        if level.name == key:
            return index
    ratio = LETTERS.get(str(key)) or as_number(key)
    for index, level in enumerate(levels):
        if math.isclose(level.ratio, ratio, rel_tol=1e-6):
            return index
    known = ", ".join(f"{level.name!r} ({level.ratio:g})" for level in levels)
    raise ConfigError(f"mix names the level {key!r}, but the levels are {known}")


def as_number(key: str | float) -> float:
    """The number this key spells, or NaN."""
    try:
        return float(key)
    except ValueError:
        return math.nan


def counts_of(shares: Tensor, clients: int) -> Tensor:
    """How many of the clients are of each level: largest remainders, of equal ones the later level's.

    >>> counts_of(torch.tensor([0.25, 0.75]), 10)
    tensor([2, 8])
    """
    quotas = shares.double() * clients
    counts = quotas.floor().long()
    # rounded, so that what is equal but for the last bit counts as equal
    behind = (quotas - counts).mul(1e9).round().flip(0).argsort(stable=True, descending=True)
    counts[len(counts) - 1 - behind[: clients - int(counts.sum())]] += 1
    return counts
