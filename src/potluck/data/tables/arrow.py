"""Tables as Arrow reads them from files, which may be a stranger's.

A Parquet file writes equal values once: a megabyte of it may stand for more than memory holds.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from potluck.core import machine
from potluck.core.errors import DataError

WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}  # bytes of a value in memory, by how a file stores it
WIDEST = 8  # of all others: of text that is a reference
TEXT = "BYTE_ARRAY"  # how Parquet stores text


def read_csv(path: Path) -> Any:
    """The table in a CSV file, whose cells take about as much memory as they have letters."""
    require_room(path, path.stat().st_size)
    return import_module("pyarrow.csv").read_csv(path)


def read_parquet(path: Path) -> Any:
    """The table in a Parquet file; equal texts stay one."""
    parquet = import_module("pyarrow.parquet")
    about = parquet.read_metadata(path)
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    chunks = [(group, group.column(number)) for group in groups for number in range(about.num_columns)]
    require_room(path, sum(bytes_of(chunk, group.num_rows) for group, chunk in chunks))
    texts = {chunk.path_in_schema for _, chunk in chunks if chunk.physical_type == TEXT}
    return parquet.read_table(path, read_dictionary=sorted(texts))


def bytes_of(chunk: Any, rows: int) -> int:
    """What a piece of a column takes in memory at least."""
    packed, values = int(chunk.total_uncompressed_size), int(chunk.num_values)
    return max(values, rows) * WIDTHS.get(chunk.physical_type, WIDEST) + max(0, packed)


def require_room(path: Path, needed: int) -> None:
    """Refuse a table that leaves no room for the tensors that are made of it."""
    if needed > machine.memory() // 2:
        raise DataError(
            f"{path} would take {needed / 2**30:,.1f} GiB of memory and as much again for its tensors, but this "
            f"machine has {machine.memory() / 2**30:,.1f}; give fewer rows or columns, or arrays mapped from files"
        )


def cells_of(column: Any) -> Any:
    """A column as an array. Of what can be no input, such as lists of text, each cell is its type and nothing more."""
    types = import_module("pyarrow").types
    if not can_be_read(column.type, types):
        found = np.empty(len(column), dtype=object)
        found.fill(column.type)
        return found
    found = column.to_numpy()
    if types.is_dictionary(column.type) and column.null_count:
        found = found.astype(object)  # Arrow gives the last of all values where there is none
        found[column.is_null().to_numpy()] = None
    return found


def can_be_read(kind: Any, types: Any) -> bool:
    """Whether these are single values, or lists of numbers: a list of texts would hold each text anew."""
    inner, listed = kind, False
    while types.is_list(inner) or types.is_large_list(inner) or types.is_fixed_size_list(inner):
        inner, listed = inner.value_type, True
    return types.is_primitive(inner) or types.is_null(inner) or not (listed or types.is_nested(inner))
