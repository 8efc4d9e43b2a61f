"""What a process has made and may need again: networks, plans, decompositions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from torch import nn

Made = TypeVar("Made")

REMEMBERED = 64  # results kept per function: windows that roll ask for new plans every round


@dataclass
class Memo:
    """Results by what they depend on: the function that made them and its arguments."""

    made: dict[object, OrderedDict[tuple[Hashable, ...], Any]] = field(default_factory=dict)
    newest: dict[Hashable, tuple[tuple[object, ...], Any]] = field(default_factory=dict)
    frozen: dict[str, nn.Parameter] | None = field(default_factory=dict)  # of networks built here; None: not shared

    def once(self, make: object, args: tuple[Hashable, ...], call: Callable[[], Made]) -> Made:
        """The result for these arguments; the oldest result of a function goes when there are too many.

        >>> memo = Memo()
        >>> memo.once(abs, (-2,), lambda: abs(-2)), memo.once(abs, (-2,), lambda: 0)
        (2, 2)
        """
        results = self.made.setdefault(make, OrderedDict())
        if args in results:
            results.move_to_end(args)
        else:
            results[args] = call()
            if len(results) > REMEMBERED:
                results.popitem(last=False)
        return cast(Made, results[args])

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
