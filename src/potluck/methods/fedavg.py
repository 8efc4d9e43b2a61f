"""FedAvg: every client trains the same network, the server takes the mean weighted by examples.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep
Networks from Decentralized Data (AISTATS 2017).

Departures: none in the averaging. In a fleet of unequal devices one network cannot suit all, so
`width` says which one is trained, and devices too small for it sit out: the two honest baselines
are the smallest width (everybody takes part) and the largest (only the strong do).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from potluck.parts.one_network import OneNetwork


@dataclass(frozen=True)
class FedAvg(OneNetwork):
    """One network for all; devices that cannot carry it sit out."""

    paper: ClassVar[str] = "McMahan et al.: Communication-Efficient Learning of Deep Networks (AISTATS 2017)"
