"""Rules by which training examples are given to clients."""

from __future__ import annotations

from potluck.core.errors import ConfigError
from potluck.core.plug import unknown
from potluck.data.partitions.balanced_dirichlet import BalancedDirichlet
from potluck.data.partitions.classes import Classes
from potluck.data.partitions.cover import Partition, dropped
from potluck.data.partitions.dirichlet import Dirichlet
from potluck.data.partitions.drawn import Drawn
from potluck.data.partitions.iid import IID
from potluck.data.partitions.natural import Natural
from potluck.data.partitions.shards import Shards

__all__ = [
    "IID",
    "PARTITIONS",
    "BalancedDirichlet",
    "Classes",
    "Dirichlet",
    "Drawn",
    "Natural",
    "Partition",
    "Shards",
    "dropped",
    "partition_named",
]

PARTITIONS: dict[str, type[Partition]] = {
    "iid": IID,
    "shards": Shards,
    "classes": Classes,
    "dirichlet": Dirichlet,
    "balanced-dirichlet": BalancedDirichlet,
    "natural": Natural,
    "drawn": Drawn,
}


def partition_named(name: str) -> type[Partition]:
    """The partition that a configuration calls by this name."""
    if name not in PARTITIONS:
        raise ConfigError(unknown("partition", name, PARTITIONS))
    return PARTITIONS[name]
