"""What many runs need of this machine: what is missing or misspelt is told once, before the first of them begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from potluck.core.errors import DataError
from potluck.core.plug import is_path
from potluck.data import sources
from potluck.data.sources.table import NAME as TABLE
from potluck.data.sources.table import load_table
from potluck.models.catalogue import find_model
from potluck.series.entry import Stage
from potluck.study.config import name_of, options_of
from potluck.study.networks import options_of_ours
from potluck.study.schema import NOWHERE, Table
from potluck.study.settings import Named


def require_needs(stages: Iterable[Stage], data_dir: Path | None) -> None:
    """Refuse runs whose data are not on this machine, or whose network or data have no such options.

    What is somebody's own code is left to the runs.
    """
    left = [stage.entry.table for stage in stages if not stage.finished]
    for name, options in once(table["task"]["model"] for table in left):
        options_of_ours(find_model(name), options, "task.model", name, NOWHERE)
    for setting in ("source", "proxy"):
        for name, options in once(table["data"][setting] for table in left if setting in table["data"]):
            try:
                require_there(name, options, setting, data_dir)
            except DataError as error:
                raise DataError(f"[data] {setting}: {error}") from error


def once(many: Iterable[Named]) -> Iterator[tuple[str, Table]]:
    """Names of ours with their options, each of them once."""
    different = {repr(named): named for named in many}.values()
    return ((name_of(named), options_of(named)) for named in different if not is_path(name_of(named)))


def require_there(name: str, options: Table, setting: str, data_dir: Path | None) -> None:
    """Refuse data that are not there."""
    load = load_table if name == TABLE else sources.load
    options_of_ours(load, options, f"data.{setting}", name, NOWHERE)
    if name == TABLE:
        load_table(**options)  # whether it has these columns, and what is in them, shows when it is read
    else:
        sources.find(name, data_dir)
