"""Whoever looks on while an experiment runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol

from potluck.core.types import Update
from potluck.study.tuning import Timed, told

Record = dict[str, Any]
"""What is written down of a round."""


class Watcher(Protocol):
    """Whoever wants to know how a run is going."""

    def tuned(self, ways: Mapping[str, str], timed: Timed) -> None: ...

    def begins(self, rounds: int, done: int) -> None: ...

    def client_done(self, update: Update) -> None: ...

    def round_done(self, record: Record) -> None: ...


class Nobody:
    """Watches nothing."""

    def tuned(self, ways: Mapping[str, str], timed: Timed) -> None:
        pass

    def begins(self, rounds: int, done: int) -> None:
        pass

    def client_done(self, update: Update) -> None:
        pass

    def round_done(self, record: Record) -> None:
        pass


class Rounds(Nobody):
    """Says how every evaluated round went, a line each on the error stream, where it is in nobody's way."""

    def tuned(self, ways: Mapping[str, str], timed: Timed) -> None:
        print(told(ways, timed), file=sys.stderr, flush=True)

    def begins(self, rounds: int, done: int) -> None:
        self.rounds = rounds

    def round_done(self, record: Record) -> None:
        scores = {name: found["accuracy"] for name, found in record["levels"].items() if found["accuracy"] is not None}
        if scores:
            shown = ", ".join(f"{name} {accuracy:.1%}" for name, accuracy in scores.items())
            print(f"round {record['round']}/{self.rounds}: {shown}", file=sys.stderr, flush=True)
