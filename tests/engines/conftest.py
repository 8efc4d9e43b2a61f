"""Engines that tests share, since starting worker processes takes seconds; and an end to endless waiting."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest
import torch

from potluck.core.engine import Engine
from potluck.engines.local import Local
from potluck.engines.serial import Serial

PATIENCE = 120  # seconds after which a test is taken to hang; on a busy machine a worker takes 20 to begin


@pytest.fixture(scope="session", autouse=True)
def warm() -> None:
    """Have PyTorch load what it loads when something is first trained, so that no test pays for being the first.

    That is 800 modules: seconds, or half a minute where all cores are busy.
    """
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9, foreach=True).step()
    torch.func.vmap(torch.sin)(torch.zeros(2))


@pytest.fixture(autouse=True)
def patience(warm: None) -> Iterator[None]:
    """Fail instead of waiting for ever."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the test hangs: no end after {PATIENCE} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def local() -> Iterator[Local]:
    """Two workers, for tests that leave nothing behind in them."""
    engine = Local(2)
    yield engine
    engine.close()


@pytest.fixture(params=["serial", "local"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    if request.param == "serial":
        return Serial()
    workers: Local = request.getfixturevalue("local")
    return workers


@pytest.fixture
def lone() -> Iterator[Local]:
    """One worker, for a test that may spoil it."""
    engine = Local(1)
    yield engine
    engine.close()
