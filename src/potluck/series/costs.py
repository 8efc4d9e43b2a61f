"""What runs reach for what they spend: a score at an equal budget, and the cost of reaching a target."""

from __future__ import annotations

from collections.abc import Iterable

from potluck.series.played import Played
from potluck.study.best import sign
from potluck.study.levels import MEAN

LEEWAY = 0.05
"""By what share a run may exceed a budget: levels are drawn and clocks wander, so no two runs cost the same."""


def at_budget(run: Played, what: str, budget: float, level: str = MEAN) -> float | None:
    """The score of the last scored round that ended within a budget, but for a hair; None if no round did."""
    spent = run.spent(what)
    within = [at for at in run.evaluated if spent[at] <= budget * (1 + LEEWAY)]
    return run.score(within[-1], level) if within else None


def equal_budget(groups: Iterable[Iterable[Played]], what: str) -> float:
    """The largest budget that runs of every group have spent: what the dearest run of the cheapest group took in all.

    So all runs of that group count with their last round, though no two of them cost the same.
    """
    return min(max(run.spent(what)[-1] for run in runs) for runs in groups)


def to_reach(run: Played, what: str, target: float, level: str = MEAN) -> float | None:
    """What was spent until a scored round first reached a target; None if none did.

    FedHM, figure 7: communication is 2 x participants x parameters x rounds, computation is MACs x epochs x samples x
    rounds, up to the round that reaches the target accuracy. Here both are what the books counted: bytes sent and
    received, and the MACs of the clients' examples.
    """
    spent, way = run.spent(what), sign(run.measure)
    for at in run.evaluated:
        score = run.score(at, level)
        if score is not None and way * score <= way * target:
            return spent[at]
    return None
