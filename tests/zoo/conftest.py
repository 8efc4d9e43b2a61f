"""Small networks are slower on many threads than on one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from potluck.core.threads import one_thread


@pytest.fixture(scope="module", autouse=True)
def on_one_thread() -> Iterator[None]:
    with one_thread():
        yield
