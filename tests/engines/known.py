"""Known faults that are not mended yet: a test that shows one has to fail, and says so when it no longer does."""

from __future__ import annotations

import pytest


def not_yet(reason: str) -> pytest.MarkDecorator:
    """A test that fails for this reason."""
    return pytest.mark.xfail(strict=True, reason=reason)


def not_yet_in_serial(reason: str) -> pytest.MarkDecorator:
    """A test that fails for this reason in the engine `serial` alone."""
    return pytest.mark.parametrize("engine", [pytest.param("serial", marks=not_yet(reason)), "local"], indirect=True)
