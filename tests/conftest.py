"""Settings of all tests."""

from __future__ import annotations

import pytest
from hypothesis import settings

import kept
from potluck.engines.local import Local

settings.register_profile("potluck", deadline=None)  # how long an example takes says nothing on a busy machine
settings.load_profile("potluck")

WITH_WORKERS_OF_THEIR_OWN = {"cli", "engines"}  # rooms whose tests are about how workers start and end


@pytest.fixture(autouse=True)
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests that are not about workers leave theirs to the next."""
    if request.path.parent.name not in WITH_WORKERS_OF_THEIR_OWN:
        monkeypatch.setattr(Local, "open", kept.open_with_kept)
        monkeypatch.setattr(Local, "close", kept.close_and_keep)
