"""What code of the user's gives, or a sentence about where it failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from potluck.core.blame import foreign_failure
from potluck.core.errors import DataError, PotluckError


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Say what it was that failed inside, and why."""
    try:
        yield
    except (PotluckError, StopIteration):
        raise
    except Exception as error:
        why = foreign_failure(error) or f"{type(error).__name__}: {error}"
        raise DataError(f"{what}: {why}") from error


def item_of(data: Any, number: int) -> Any:
    """An item of a data set."""
    with blamed(f"item {number} of the data cannot be read"):
        return data[number]
