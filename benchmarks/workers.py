"""How much faster two workers are than one: pfl's CIFAR-10 network, FedAvg.

python benchmarks/workers.py
"""

from __future__ import annotations

from functools import partial
from statistics import median

from figures import Figure, in_turns, ratio, show
from simulators import ours
from tasks import CONTESTS

REPEATS = 3


def figures() -> list[Figure]:
    """One worker and two, in turn."""
    contest, found = CONTESTS["cnn"], []
    for step in ("plain", "channels-last"):
        rates = in_turns({str(count): partial(ours, contest, step, count) for count in (1, 2)}, REPEATS)
        beside = f"{median(rates['1']):.1f} and {median(rates['2']):.1f} trainings/s"
        found.append(Figure("workers", f"two against one, {step}", ratio(rates["2"], rates["1"]), "x", beside))
    return found


if __name__ == "__main__":
    show(figures())
