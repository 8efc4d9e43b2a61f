"""What it costs that clients differ: a fleet of five widths beside five fleets of one width each.

pfl's CIFAR-10 network under HeteroFL. The mixed fleet has as many clients of every width. The others train one width
each, with a global network of just that width: the same MACs, and nothing to cut out or to put together.

python benchmarks/heterogeneity.py
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

from figures import Figure, in_turns, show
from simulators import Stopwatch
from tasks import CLIENTS, COHORT, CONTESTS, InOrder, pfl_cnn
from torch import nn

import potluck

WIDTHS = (1.0, 0.5, 0.25, 0.125, 0.0625)
ROUNDS, REPEATS = 4, 3


def scaled(most: float, width: float) -> nn.Module:
    """pfl's network for a fleet whose widest network is narrower."""
    return pfl_cnn(most * width)


def seconds_per_round(model: Callable[[float], nn.Module], levels: dict[str, float]) -> float:
    """The seconds of a round with as many clients of every level."""
    contest, watch = CONTESTS["cnn"], Stopwatch()
    potluck.run(
        model=model,
        data=contest.dataset(),
        levels=levels,
        clients=CLIENTS,
        rounds=ROUNDS + 1,
        method="heterofl",
        partition=InOrder(),
        assignment="fixed",
        train=contest.train(),
        cohort=COHORT,
        evaluate_every=10**9,
        watcher=watch,
    )
    return (watch.ended - watch.started) / ROUNDS


def figures() -> list[Figure]:
    """The mixed fleet's round beside a fifth of each uniform fleet's."""
    mixed = partial(seconds_per_round, pfl_cnn, {f"{width:g}": width for width in WIDTHS})
    alone = {f"{w:g}": partial(seconds_per_round, partial(scaled, w), {"all": 1.0}) for w in WIDTHS}
    took = in_turns({"mixed": mixed, **alone}, REPEATS)
    apart = [sum(one) / len(WIDTHS) for one in zip(*(took[name] for name in alone), strict=True)]
    cost = median(one / other - 1 for one, other in zip(took["mixed"], apart, strict=True))
    beside = f"a round takes {median(took['mixed']):.3f} s, five uniform fifths {median(apart):.3f} s"
    return [Figure("heterogeneity", "time on top of the same MACs", 100 * cost, "%", beside)]


if __name__ == "__main__":
    show(figures())
