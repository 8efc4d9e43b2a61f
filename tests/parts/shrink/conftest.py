"""The trace's hand-made networks and the zoo's checks serve here, too, on one thread."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from potluck.core.threads import one_thread

PARTS = Path(__file__).parents[1]
sys.path[:0] = [str(PARTS / "trace"), str(PARTS.parent)]


@pytest.fixture(scope="module", autouse=True)
def on_one_thread() -> Iterator[None]:
    with one_thread():
        yield
