"""What clients are called, if they were known before the run; and what a run's directory says of them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from potluck.core.data import AnyHoldings, Examples, Holdings
from potluck.core.errors import ConfigError, DataError
from potluck.core.fleet import Fleet
from potluck.core.recipe import table_digest
from potluck.data.dataset import Dataset
from potluck.data.owners import listed, owners_of_clients, says_more
from potluck.data.partitions import Natural, Partition
from potluck.study.schema import Table

LISTED = 10  # names in an error


def owners_called(data: Dataset, numbers: Tensor | None, partition: Partition, holdings: AnyHoldings) -> list[str]:
    """What the owner behind each client is called; nothing if clients are not the owners of the data."""
    if (
        data.owners is None
        or numbers is None
        or not (isinstance(partition, Natural) and isinstance(holdings, Holdings))
    ):
        return []
    return owners_of_clients(data.owners, numbers, holdings)


def names_of(data: Dataset, called: Sequence[str]) -> tuple[str, ...]:
    """The names of clients; none if their numbers say it all."""
    return tuple(called) if data.owners is not None and called and says_more(data.owners, called) else ()


def owners_digest(data: Dataset) -> str:
    """What tells the owners of these data from others in a record."""
    columns = {"train": data.owners, "test": data.test_owners}
    return table_digest({part: [] if owners is None else listed(owners) for part, owners in columns.items()})


def client_number(which: object, names: Sequence[str], total: int) -> int:
    """The number of a client, which is asked for by its name if clients have names."""
    text = str(which)
    if names:
        if text in names:
            return names.index(text)
        close = difflib.get_close_matches(text, names, n=1)
        known = f"{', '.join(names[:LISTED])}{' …' if len(names) > LISTED else ''}"
        raise ConfigError(
            f"there is no client {text!r}; " + (f"did you mean {close[0]!r}?" if close else f"there are {known}")
        )
    if not text.removeprefix("-").isdecimal():
        raise ConfigError(
            f"client is {text!r}, but clients of this run have no names: they are numbered from 0 to {total - 1}"
        )
    if not 0 <= int(text) < total:
        raise ConfigError(f"there is no client {text}; they are numbered from 0 to {total - 1}")
    return int(text)


def client_rows(fleet: Fleet, names: Sequence[str], with_labels: bool) -> list[Table]:
    """What a run's directory says of clients that have names: all that the server knows of them."""
    return [
        {
            "name": name,
            "examples": fleet.holder.size(number),
            **({"labels": list(fleet.holder.labels(number))} if with_labels else {}),
        }
        for number, name in enumerate(names)
    ]


def is_row(row: object) -> bool:
    """Whether this says of a client what a run writes down."""
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return False
    labels = row.get("labels", [])
    return isinstance(labels, list) and all(type(each) is int and each >= 0 for each in [*labels, row.get("examples")])


def clients_digest(rows: Sequence[Table]) -> str:
    """What ties such rows to the config of their run."""
    return table_digest({"clients": rows})


@dataclass(frozen=True)
class Told:
    """Clients of whom only that is known which a run's directory says: their data are not here."""

    rows: Sequence[Table]

    def __len__(self) -> int:
        return len(self.rows)

    def examples(self, client: int) -> Examples:
        raise DataError(f"the examples of client {self.rows[client]['name']!r} are not here")

    test = examples

    def size(self, client: int) -> int:
        return int(self.rows[client]["examples"])

    def labels(self, client: int) -> tuple[int, ...]:
        return tuple(self.rows[client].get("labels", ()))
