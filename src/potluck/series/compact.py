"""How a file of presets writes many rows in few words.

`table` is text: a line with the columns, then a line for each row, cells between bars. A column is what a row has, by
its path (`costs.parameters.mean`, `paper.iid.mean`, `set.method.scaler`); `{largest}` in it is the row's largest level,
and an empty cell says nothing. `interpolate` names levels: every two of them are mixed, from 1 : 9 to 9 : 1. A row
without a name is called by its levels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from potluck.core.errors import ConfigError
from potluck.core.plug import unknown
from potluck.study.config import value_of
from potluck.study.schema import Table

LARGEST = "{largest}"
PARTS = 10  # in which an interpolation divides the clients


def expanded(preset: Table, levels: Mapping[str, float]) -> Table:
    """A preset with all of its rows written out."""
    found = dict(preset)
    rows = [*found.pop("rows", []), *tabled(found.pop("table", ""), levels), *mixed(found.pop("interpolate", []))]
    return {**found, "rows": [{"name": row.get("levels", ""), **row} for row in rows]}


def tabled(text: str, levels: Mapping[str, float]) -> Iterator[Table]:
    """The rows of a text."""
    lines = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.strip()]
    columns = lines[0] if lines else []
    for cells in lines[1:]:
        if len(cells) != len(columns):
            raise ConfigError(f"table has {len(columns)} columns, but this row {len(cells)} cells: {' | '.join(cells)}")
        given = dict(zip(columns, cells, strict=True))
        largest = largest_of(given.get("levels", ""), levels)
        row: Table = {}
        for column, cell in given.items():
            if cell:
                put(row, column.replace(LARGEST, largest).split("."), value_in(column, cell))
        yield row


def put(row: Table, path: list[str], value: Any) -> None:
    """Put a value where its path leads."""
    for key in path[:-1]:
        row = row.setdefault(key, {})
    row[path[-1]] = value


def value_in(column: str, cell: str) -> Any:
    """What a cell says: numbers of a paper, settings, names of settings, or text as printed."""
    kind = column.partition(".")[0]
    if kind == "use":
        return [name.strip() for name in cell.split(",")]
    return float(cell) if kind == "paper" else value_of(column, cell) if kind in ("set", "where") else cell


def mixed(names: list[str]) -> Iterator[Table]:
    """Rows that mix every two levels."""
    for one, other in combinations(names, 2):
        yield from ({"levels": f"{one}{part}-{other}{PARTS - part}"} for part in range(1, PARTS))


def fleet_of(text: str, levels: Mapping[str, float]) -> Table:
    """The settings that a row's levels mean.

    >>> fleet_of("a-c", {"a": 1.0, "b": 0.5, "c": 0.25})
    {'fleet': {'levels': {'a': 1.0, 'c': 0.25}}}
    >>> fleet_of("a1-c9", {"a": 1.0, "b": 0.5, "c": 0.25})["fleet"]["assignment"]
    {'mix': {'a': 1, 'c': 9}}
    """
    shares = shares_in(text, levels)
    if not shares:
        return {}
    fleet: Table = {"levels": {name: levels[name] for name in shares}}
    if any(shares.values()):
        fleet["assignment"] = {"mix": shares}
    return {"fleet": fleet}


def largest_of(text: str, levels: Mapping[str, float]) -> str:
    """The largest of a row's levels."""
    return max(shares_in(text, levels), key=lambda name: levels[name], default="")


def shares_in(text: str, levels: Mapping[str, float]) -> dict[str, int]:
    """Each level in a row's text with its share, 0 if none is given."""
    found = {}
    for part in text.split("-") if text else []:
        name, share = part, 0
        if name not in levels and (numbered := re.fullmatch(r"(.*?)(\d+)", part)):
            name, share = numbered[1], int(numbered[2])
        if name not in levels:
            raise ConfigError(unknown("level", name, levels))
        found[name] = share
    return found
