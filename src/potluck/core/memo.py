"""What a process has made and may need again: networks, plans, decompositions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from torch import nn

Made = TypeVar("Made")

REMEMBERED = 64  # results kept per function: windows that roll ask for new plans every round


@dataclass
class Memo:
    """Results by what they depend on: the function that made them and its arguments."""

    made: dict[tuple[Hashable, ...], Any] = field(default_factory=dict)
    counts: dict[Hashable, int] = field(default_factory=dict)  # of results, by function
    newest: dict[Hashable, tuple[tuple[object, ...], Any]] = field(default_factory=dict)
    frozen: dict[Hashable, list[nn.Parameter]] | None = field(default_factory=dict)  # in networks; None: not shared

    def keep(self, key: tuple[Hashable, ...], result: object) -> None:
        """Remember a result by function and arguments; the oldest of that function goes when there are too many."""
        function = key[0]
        if self.counts.get(function, 0) >= REMEMBERED:
            del self.made[next(known for known in self.made if known[0] == function)]
        else:
            self.counts[function] = self.counts.get(function, 0) + 1
        self.made[key] = result

    def latest(self, where: Hashable, args: tuple[object, ...], call: Callable[[], Made]) -> Made:
        """The result for these arguments, of which only the newest is kept for a place.

        Numbers and words are compared by value, everything else by identity: equal tensors are not the same tensor.
        """
        if not self.knows(where, args):
            self.newest[where] = args, call()
        return cast(Made, self.newest[where][1])

    def knows(self, where: Hashable, args: tuple[object, ...]) -> bool:
        """Whether the newest result of a place was made from these arguments."""
        known = self.newest.get(where)
        return known is not None and len(known[0]) == len(args) and all(map(same, known[0], args))


def same(one: object, other: object) -> bool:
    """Whether two arguments are the same for `latest`."""
    return one is other or (isinstance(one, int | float | str) and one == other)
