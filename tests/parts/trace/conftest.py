"""The zoo's checks serve here, too; small networks are slower on many threads than on one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from potluck.core.threads import one_thread

sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(scope="module", autouse=True)
def on_one_thread() -> Iterator[None]:
    with one_thread():
        yield
