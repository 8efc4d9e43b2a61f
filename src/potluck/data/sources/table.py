"""A table of the user's in a CSV or Parquet file, as a config names it: `source = { name = "table", path = "…" }`."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from potluck.core.data import Arrays, rows
from potluck.core.errors import DataError
from potluck.core.random import stream
from potluck.data.dataset import Dataset
from potluck.data.how import Given, How
from potluck.data.named import require_names
from potluck.data.own import read
from potluck.data.tables.read import SUFFIXES, is_table_file

NAME = "table"


def load_table(
    *,
    path: str = "",
    target: str | list[str] | None = None,
    inputs: list[str] | None = None,
    owner: str | None = None,
    test: str | float = 0.2,
) -> Dataset:
    """The rows of a table; `test` is another table, or the share of rows to score on, which is the same for all seeds.

    Paths count from the working directory, as those of modules do.
    """
    how = How(target, inputs, owner)
    given = read_file(path, "path", how)
    if isinstance(test, str):
        scored = read_file(test, "test", how)
        require_names(given.examples, path, scored.examples, test)
        return Dataset(given.examples, scored.examples, owners=given.owners, test_owners=scored.owners)
    count = len(given)
    held = math.ceil(count * test) if math.isfinite(test) else 0
    if not 0 < held < count:
        raise DataError(
            f"test is {test}, which would hold out {held} of {count} rows, but some should be left on either side; "
            "give a share between 0 and 1, such as 0.2, or the path of another table"
        )
    order = torch.randperm(count, generator=stream(0, "test"))
    train, scored = (some(given, part.sort().values) for part in (order[held:], order[:held]))
    return Dataset(train.examples, scored.examples, owners=train.owners, test_owners=scored.owners)


def read_file(path: str, option: str, how: How) -> Given:
    """The table in a file."""
    if not is_table_file(path):
        raise DataError(f"{option} is {path!r}, but it should be a path that ends in {' or '.join(SUFFIXES)}")
    return read(path, how)


def some(given: Given, index: torch.Tensor) -> Given:
    """Some rows of a table."""
    whole = given.examples
    assert isinstance(whole, Arrays)
    part = replace(whole, inputs=rows(whole.inputs, index), targets=rows(whole.targets, index))
    return Given(part, None if given.owners is None else tuple(given.owners[at] for at in index.tolist()))
