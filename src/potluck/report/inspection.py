"""What a run's method recorded about itself: as tables, and as lines over the rounds.

A quantity is a number, numbers by layer, or by level and layer; a list counts like places named 1, 2, …
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from potluck.core.errors import RunError
from potluck.core.insight import Draws
from potluck.core.panels import Lines, Panel
from potluck.study.files import is_number
from potluck.study.record import RunDirectory
from potluck.study.recorded import latest_state, load

ROUNDS_SHOWN = 6
WIDE = 100.0  # from the least to the largest value; beyond it a linear scale hides most of them

Where = tuple[str, ...]  # () of a number alone, (layer,), (level, layer)


@dataclass(frozen=True)
class Quantity:
    """One of the things that a method records, over the rounds."""

    name: str
    rounds: tuple[int, ...]
    values: dict[Where, tuple[float | None, ...]]  # of every round; None where there is none

    @property
    def by_round(self) -> bool:
        """Whether it is a number or numbers by layer, which leaves room for several rounds in a table."""
        return all(len(where) < 2 for where in self.values)


@dataclass(frozen=True)
class NumberTable:
    """Named rows of numbers."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[float | None, ...]]


def quantities(run: RunDirectory) -> list[Quantity]:
    """All that a run's method recorded."""
    records = run.records()
    if not records:
        raise RunError(f"{run.path} has no finished round yet; there is nothing to inspect")
    rounds = tuple(int(record["round"]) for record in records)
    found: dict[str, dict[Where, list[float | None]]] = {}
    for place, record in enumerate(records):
        told = record.get("method", {})
        if not isinstance(told, dict):
            raise RunError(f"{run.metrics} is damaged: 'method' in line {place + 1} is not a table; restore it")
        for name, value in told.items():
            for where, number in numbers_in(value):
                found.setdefault(name, {}).setdefault(where, [None] * len(rounds))[place] = number
    return [
        Quantity(name, rounds, {where: tuple(numbers) for where, numbers in values.items()})
        for name, values in found.items()
    ]


def numbers_in(value: Any, where: Where = ()) -> Iterator[tuple[Where, float]]:
    """The numbers in nested dictionaries with where they are; a list of a layer is a number in several places."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_in(inner, (*where, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value, start=1):
            yield from numbers_in(inner, (str(place), *where))
    elif isinstance(value, float) or is_number(value):
        yield where, value


def tables(found: Sequence[Quantity]) -> list[NumberTable]:
    """A table for each quantity; those that are one number share one."""
    single = {each.name: each.values[()] for each in found if set(each.values) == {()}}
    made = [table(each) for each in found if each.name not in single]
    if single:
        rounds = found[0].rounds
        made.append(over_rounds("numbers of the whole network, by round", rounds, single))
    return made


def table(quantity: Quantity) -> NumberTable:
    """Rows are layers; columns are rounds, or levels after the last round."""
    if quantity.by_round:
        named = {row_name(quantity, where): numbers for where, numbers in quantity.values.items()}
        return over_rounds(f"{quantity.name}, by round", quantity.rounds, named)
    last = max(place for numbers in quantity.values.values() for place, n in enumerate(numbers) if n is not None)
    columns = list(dict.fromkeys(where[:-1] for where in quantity.values))
    rows = dict.fromkeys(row_name(quantity, where) for where in quantity.values)
    held = {(where[:-1], row_name(quantity, where)): numbers[last] for where, numbers in quantity.values.items()}
    return NumberTable(
        f"{quantity.name}, after round {quantity.rounds[last]}",
        tuple(" / ".join(column) for column in columns),
        {row: tuple(held.get((column, row)) for column in columns) for row in rows},
    )


def over_rounds(title: str, rounds: Sequence[int], rows: dict[str, tuple[float | None, ...]]) -> NumberTable:
    """A few rounds as columns."""
    shown = spread(len(rounds), ROUNDS_SHOWN)
    return NumberTable(
        title,
        tuple(str(rounds[place]) for place in shown),
        {name: tuple(numbers[place] for place in shown) for name, numbers in rows.items()},
    )


def spread(count: int, most: int) -> list[int]:
    """At most so many places of `count`, evenly spaced, the first and the last among them.

    >>> spread(31, 6)
    [0, 6, 12, 18, 24, 30]
    """
    if count <= most:
        return list(range(count))
    return [round(place * (count - 1) / (most - 1)) for place in range(most)]


def row_name(quantity: Quantity, where: Where) -> str:
    """What a number is called: like its layer, or like the quantity if that is one number."""
    return where[-1] if where else quantity.name


def lines(found: Sequence[Quantity]) -> list[Lines]:
    """Every quantity over the rounds, a panel for each level; what never changed is left to the tables."""
    panels = []
    for quantity in found:
        for level in dict.fromkeys(where[:-1] for where in quantity.values):
            series = {
                row_name(quantity, where): tuple(math.nan if number is None else number for number in numbers)
                for where, numbers in quantity.values.items()
                if where[:-1] == level
            }
            if any(len(set(numbers)) > 1 for numbers in series.values()):
                title = f"{quantity.name}: {' / '.join(level)}" if level else quantity.name
                rounds = tuple(map(float, quantity.rounds))
                panels.append(Lines(title, rounds, series, "round", quantity.name, spans_decades(series.values())))
    return panels


def spans_decades(series: Iterable[tuple[float, ...]]) -> bool:
    """Whether values are all positive, and so far apart that a linear scale would hide the small ones."""
    values = [value for numbers in series for value in numbers if math.isfinite(value)]
    return bool(values) and min(values) > 0 and max(values) > WIDE * min(values)


def panels_of(run: RunDirectory, trust: bool = False) -> list[Panel]:
    """Pictures of a run: what was recorded over the rounds, then what its method shows of the latest state."""
    drawn: list[Panel] = [*lines(quantities(run))]
    recorded = load(run.path, trust=trust)
    if isinstance(recorded.method, Draws):
        state, rounds = latest_state(run)
        drawn += recorded.method.panels(state, recorded.recipe.context(rounds - 1))
    return drawn
