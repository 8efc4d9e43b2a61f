"""Tables by their columns, whoever made them: frames of pandas and Polars, CSV and Parquet files, Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from potluck.core.errors import DataError
from potluck.core.plug import enumerated
from potluck.data.tables.arrow import cells_of, read_csv, read_parquet
from potluck.data.tables.cells import Cells

SUFFIXES = (".csv", ".parquet")
MARKS = {";": "semicolons", "\t": "tabs"}  # that some programs write instead of commas
Columns = Mapping[str, Cells]


def is_frame(data: Any) -> bool:
    """Whether this is a data frame; none of the packages that have one is imported for it."""
    columns = getattr(data, "columns", None)
    return columns is not None and hasattr(data, "__getitem__") and hasattr(data, "to_numpy")


def is_hugging_face(data: Any) -> bool:
    """Whether this is a data set of Hugging Face's."""
    return hasattr(data, "column_names") and hasattr(data, "with_format")


def is_table_file(data: Any) -> bool:
    """Whether this names a file with a table."""
    return isinstance(data, str | Path) and suffix_of(Path(data)) in SUFFIXES


def columns_of_frame(frame: Any) -> Columns:
    """The columns of a data frame."""
    names = list(frame.columns)
    if len(set(map(str, names))) < len(names):
        raise DataError(f"two columns of the table have the same name; the columns are {enumerated(map(str, names))}")
    return {str(name): frame[name].to_numpy() for name in names}


def columns_of_hugging_face(data: Any) -> Columns:
    """The columns of a Hugging Face data set."""
    require_one_split(data)
    return {str(name): cells for name, cells in as_torch(data)[:].items()}


def as_torch(data: Any) -> Any:
    """A Hugging Face data set that gives tensors, of the columns that its format has."""
    return data.with_format("torch", columns=data.format["columns"])


def is_read_by_item(data: Any) -> bool:
    """Whether a Hugging Face data set has no columns to look at: it is streamed, or a transform makes its rows."""
    return not hasattr(data, "__len__") or data.format["type"] == "custom"


def require_one_split(data: Any) -> None:
    """Refuse a dictionary of data sets."""
    if isinstance(data.column_names, dict):
        splits = list(data.column_names)
        raise DataError(f"the data has splits {', '.join(splits)}; pass one of them, such as data['{splits[0]}']")


def columns_of_file(path: Path) -> Columns:
    """The columns of a CSV or Parquet file."""
    try:
        arrow = import_module("pyarrow")
    except ImportError as error:
        raise DataError("reading CSV and Parquet files needs pyarrow: pip install 'potluck[tables]'") from error
    try:
        if not path.is_file():
            raise DataError(f"there is no file {path}")
        table = read_csv(path) if suffix_of(path) == ".csv" else read_parquet(path)
    except (arrow.ArrowException, OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(f"cannot read {path} as a table: {reason}") from error
    names = table.column_names
    if len(set(names)) < len(names):
        raise DataError(f"two columns of {path} have the same name; the columns are {enumerated(names)}")
    mark = next((mark for mark in MARKS if mark in names[0]), "") if len(names) == 1 else ""
    if mark and suffix_of(path) == ".csv":
        raise DataError(
            f"{path} has one column, {names[0]!r}: columns should be separated by commas, not by {MARKS[mark]}"
        )
    columns = {name: table.column(name) for name in names}
    for name, column in columns.items():
        if suffix_of(path) == ".csv" and column.type == arrow.binary():
            raise DataError(f"column '{name}' of {path} is not UTF-8; save the file as UTF-8")
    return {name: cells_of(column) for name, column in columns.items()}


def suffix_of(path: Path) -> str:
    """How a file's name ends, in small letters."""
    return path.suffix.lower()
