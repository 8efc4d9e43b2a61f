"""Which data of a user's are a table that fits in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from potluck.core.errors import ConfigError
from potluck.data.how import Given, How, short
from potluck.data.items.collect import MOST_BYTES, bytes_of
from potluck.data.tables.pick import Table
from potluck.data.tables.read import (
    as_torch,
    columns_of_file,
    columns_of_frame,
    columns_of_hugging_face,
    is_frame,
    is_hugging_face,
    is_read_by_item,
    is_table_file,
    require_one_split,
)


def owned(table: Table) -> Given:
    """The examples of a table, and who owns them."""
    owners = table.owners()
    return Given(table.examples(), None if owners is None else tuple(owners))


def table_of(data: Any, how: How) -> Table | None:
    """The data as a table, if it is one that fits in memory."""
    if is_table_file(data):
        how.only("a table", "target", "inputs", "owners", "pad", "tokenizer")
        return Table(columns_of_file(Path(data)), how, str(data))
    if is_hugging_face(data):
        require_one_split(data)
        if is_read_by_item(data):
            require_no_columns(how)
            return None
        if how.owners is None and how.tokenizer is None and not fits(data):
            return None
        return Table(columns_of_hugging_face(data), how, "the data set", alone=True)
    if is_frame(data):
        return Table(columns_of_frame(data), how)
    return None


def require_no_columns(how: How) -> None:
    """Refuse what needs whole columns, of a data set that is read row by row."""
    for name in ("owners", "tokenizer"):
        if getattr(how, name) is not None:
            raise ConfigError(
                f"{name} is {short(getattr(how, name))}, but a data set that is streamed or has a transform is read "
                "row by row; map it instead, as in data.map(…), without streaming"
            )


def fits(data: Any) -> bool:
    """Whether all rows of a Hugging Face data set fit in memory, as far as the first one tells."""
    if not len(data) or not hasattr(data, "features"):
        return True
    row = as_torch(data)[0]
    return bytes_of([cell for cell in row.values() if isinstance(cell, Tensor)]) * len(data) <= MOST_BYTES
