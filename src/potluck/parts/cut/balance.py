"""How many channels to keep where rows of them must stay equally long: halves of a shuffle, pieces of a split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

STEPS = 1000  # of improvement; blocks in rows that are still uneven stay whole


@dataclass(frozen=True)
class Row:
    """The places that each block has in a row, and how many places belong to no channel."""

    places: tuple[tuple[int, int], ...]
    staying: int = 0


Rows = tuple[Row, ...]
"""Rows that must stay equally long."""


@dataclass(frozen=True)
class Balance:
    """The rows of a network whose blocks have these sizes."""

    sizes: Sequence[int]
    rows: Sequence[Rows]
    width: float

    def evened(self, counts: Sequence[int]) -> list[int]:
        """Counts near width · size that leave every set of rows even; blocks that have none stay whole.

        >>> Balance([4, 4], [(Row(((0, 4),)), Row(((1, 4),)))], 0.6).evened([3, 2])
        [2, 2]
        """
        found = self.improve(list(counts))
        while True:
            uneven = [each for each in self.rows if self.difference(each, found) > 1e-9]
            cut = {
                block for each in uneven for row in each for block, _ in row.places if found[block] < self.sizes[block]
            }
            if not cut:
                return found
            for block in cut:
                found[block] = self.sizes[block]

    def improve(self, counts: list[int]) -> list[int]:
        """Change the counts step by step, each time where it evens the rows most."""
        for _ in range(STEPS):
            now = self.cost(counts, {})
            if now[0] < 1e-9:
                break
            best = min(self.moves(counts), key=lambda move: self.cost(counts, move), default={})
            if self.cost(counts, best) >= now:  # no step helps alone: others have to be taken with it
                carried = (self.carried(counts, move) for move in self.moves(counts))
                best = min(carried, key=lambda move: self.cost(counts, move), default={})
            if self.cost(counts, best) >= now:
                break
            for block, count in best.items():
                counts[block] = count
        return counts

    def moves(self, counts: Sequence[int]) -> Iterator[dict[int, int]]:
        """One channel more in the shortest row of a set, one fewer in the longest, or both."""
        for each in self.rows:
            lengths = [self.length(row, counts) for row in each]
            if max(lengths) - min(lengths) < 1e-9:
                continue
            short, long = (dict(each[lengths.index(extreme)].places) for extreme in (min(lengths), max(lengths)))
            more = [block for block in short if block not in long and counts[block] < self.sizes[block]]
            fewer = [block for block in long if block not in short and counts[block] > 1]
            yield from (self.moved(counts, {block: 1}) for block in more)
            yield from (self.moved(counts, {block: -1}) for block in fewer)
            yield from (self.moved(counts, {one: 1, other: -1}) for one in more for other in fewer)

    def moved(self, counts: Sequence[int], steps: Mapping[int, int]) -> dict[int, int]:
        """What blocks change to by these steps, each with those that must be as long as it is and are."""
        return {
            each: counts[each] + step
            for block, step in steps.items()
            for each in self.alike.get(block, {block})
            if counts[each] == counts[block]
        }

    def carried(self, counts: Sequence[int], move: Mapping[int, int]) -> dict[int, int]:
        """A move, and what other rows of one block change to with it, so that sets that were even stay so."""
        found, waiting = dict(move), [each for each in self.rows if self.difference(each, counts) < 1e-9]
        while waiting:
            changed = [found.get(block, count) for block, count in enumerate(counts)]
            uneven = next((each for each in waiting if self.difference(each, changed) > 1e-9), None)
            if uneven is None:
                break
            waiting.remove(uneven)
            lengths = {self.length(row, changed) for row in uneven if any(block in found for block, _ in row.places)}
            alone = [row for row in uneven if len(row.places) == 1]
            for row in alone if len(lengths) == 1 else ():
                block, places = row.places[0]
                count = (max(lengths) - row.staying) * self.sizes[block] / places
                if count.is_integer() and 1 <= count <= self.sizes[block]:
                    found[block] = int(count)
        return found

    @cached_property
    def alike(self) -> dict[int, set[int]]:
        """Blocks that are rows by themselves, such as heads, with all that must be as long."""
        found: dict[int, set[int]] = {}
        for each in self.rows:
            alone = [row.places[0] for row in each if len(row.places) == 1 and not row.staying]
            if len(alone) == len(each) and len({(places, self.sizes[block]) for block, places in alone}) == 1:
                joined = {one for block, _ in alone for one in found.get(block, {block})}
                found.update(dict.fromkeys(joined, joined))
        return found

    def cost(self, counts: Sequence[int], move: Mapping[int, int]) -> tuple[float, float]:
        """How uneven the rows would be, and Σ (k - w n)², how far the counts from what they should be."""
        changed = [move.get(block, count) for block, count in enumerate(counts)]
        uneven = sum(self.difference(each, changed) for each in self.rows)
        return uneven, sum((count - self.width * size) ** 2 for count, size in zip(changed, self.sizes, strict=True))

    def difference(self, rows: Rows, counts: Sequence[int]) -> float:
        """By how much the longest and the shortest row differ."""
        lengths = [self.length(row, counts) for row in rows]
        return max(lengths) - min(lengths)

    def length(self, row: Row, counts: Sequence[int]) -> float:
        """How long a row is in the narrow network."""
        return row.staying + sum(places * counts[block] / self.sizes[block] for block, places in row.places)
