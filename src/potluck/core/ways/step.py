"""How clients are trained, as a setting: "auto", one way for all levels, or a way for each."""

from __future__ import annotations

from collections.abc import Iterable

from potluck.core.errors import ConfigError
from potluck.core.ways.way import PLAIN, Way

AUTO = "auto"

Step = str | dict[str, str]


def ways_of(step: Step, levels: Iterable[str]) -> dict[str, str]:
    """A way for every level, from a setting that is not "auto".

    >>> ways_of({"server": "channels-last"}, ["server", "watch"])
    {'server': 'channels-last', 'watch': 'plain'}
    """
    known = list(levels)
    ways = dict.fromkeys(known, step) if isinstance(step, str) else dict.fromkeys(known, PLAIN) | step
    for level, way in ways.items():
        if level not in known:
            raise ConfigError(f"[engine] step names the level '{level}', but the levels are {', '.join(known)}")
        if way == AUTO:
            raise ConfigError(f"[engine] step is 'auto' for level '{level}', but it is for all levels or for none")
        Way.called(way)
    return ways


def same_ways(one: Step, other: Step, levels: Iterable[str]) -> bool:
    """Whether two settings mean the same; "auto" agrees with whatever was chosen."""
    known = list(levels)
    return AUTO in (one, other) or ways_of(one, known) == ways_of(other, known)
