"""How clients are trained, as a setting: "counted", "auto", one way for all levels, or a way for each."""

from __future__ import annotations

from collections.abc import Iterable

from potluck.core.errors import ConfigError
from potluck.core.ways.way import PLAIN, Way

COUNTED, AUTO = "counted", "auto"
TO_BE_CHOSEN = (COUNTED, AUTO)  # settings that name no way: which it is shows before the first round

Step = str | dict[str, str]


def ways_of(step: Step, levels: Iterable[str]) -> dict[str, str]:
    """A way for every level, from a setting that names ways.

    >>> ways_of({"server": "channels-last"}, ["server", "watch"])
    {'server': 'channels-last', 'watch': 'plain'}
    """
    known = list(levels)
    ways = dict.fromkeys(known, step) if isinstance(step, str) else dict.fromkeys(known, PLAIN) | step
    for level, way in ways.items():
        if level not in known:
            raise ConfigError(f"[engine] step names the level '{level}', but the levels are {', '.join(known)}")
        if way in TO_BE_CHOSEN:
            raise ConfigError(f"[engine] step is '{way}' for level '{level}', but it is for all levels or for none")
        Way.called(way)
    return ways


def same_ways(one: Step, other: Step, levels: Iterable[str]) -> bool:
    """Whether two settings mean the same; one that names no way agrees with whatever was chosen."""
    known = list(levels)
    return one in TO_BE_CHOSEN or other in TO_BE_CHOSEN or ways_of(one, known) == ways_of(other, known)
