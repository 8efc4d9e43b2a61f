"""How much less a smaller network spends than the whole one until it is as good: FedHM's figures of costs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from potluck.series.costs import to_reach
from potluck.series.played import Played

SAVED = {"communication_saved": "bytes", "computation_saved": "MACs"}
"""What a factor is about, by its name in a preset."""


def saved(runs: Sequence[Played], whole: Sequence[Played], measure: str, target: float | None) -> float | None:
    """How many times what these runs spent the whole network's runs spent to reach a target, on average over seeds;
    None if one of them never reached it."""
    if target is None:
        return None
    spent, its = ([to_reach(run, SAVED[measure], target) for run in each] for each in (runs, whole))
    own, other = ([cost for cost in costs if cost is not None] for costs in (spent, its))
    if not own or not other or len(own) < len(spent) or len(other) < len(its):
        return None
    return fmean(other) / fmean(own)
