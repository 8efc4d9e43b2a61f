"""Whoever looks on while an experiment runs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from potluck.core.errors import ConfigError
from potluck.core.server import Failure
from potluck.core.types import Update
from potluck.study.headline import ACCURACY, figure, headline_of, shown_scores
from potluck.study.tuning import Timed, told

Record = dict[str, Any]
"""What is written down of a round."""


class Watcher(Protocol):
    """Whoever wants to know how a run is going; `potluck.run` takes objects that have some of these methods."""

    def tuned(self, ways: Mapping[str, str], timed: Timed) -> None:
        """With `step="auto"`: the way in which each level is trained, and the seconds that each way took."""

    def begins(self, rounds: int, done: int) -> None:
        """Before the first round; `done` rounds were played before, if the run is resumed."""

    def client_done(self, update: Update) -> None:
        """For each answer of a client, usable or not."""

    def client_failed(self, failure: Failure) -> None:
        """For each update that is left out, with the reason."""

    def round_done(self, record: Record) -> None:
        """After each round, with its line of the metrics."""

    def ends(self, metrics: Sequence[Record]) -> None:
        """At the end, with the records of all rounds."""


class Nobody:
    """Watches nothing."""

    def tuned(self, ways: Mapping[str, str], timed: Timed) -> None:
        pass

    def begins(self, rounds: int, done: int) -> None:
        pass

    def client_done(self, update: Update) -> None:
        pass

    def client_failed(self, failure: Failure) -> None:
        pass

    def round_done(self, record: Record) -> None:
        pass

    def ends(self, metrics: Sequence[Record]) -> None:
        pass


VERBS = ("tuned", "begins", "client_done", "client_failed", "round_done", "ends")


class Partly(Nobody):
    """Watches what another object has methods for."""

    def __init__(self, watcher: object) -> None:
        for verb in VERBS:
            if callable(heard := getattr(watcher, verb, None)):
                setattr(self, verb, heard)


def completed(watcher: object) -> Watcher:
    """A watcher that has all verbs, from an object that has some of them."""
    if not any(callable(getattr(watcher, verb, None)) for verb in VERBS):
        raise ConfigError(
            f"watcher is {watcher!r}, but it should be None or an object with some of the methods {', '.join(VERBS)}"
        )
    return Partly(watcher)


class Rounds(Nobody):
    """Prints a line to stderr for each evaluated round, and says whose update was left out."""

    def __init__(self) -> None:
        self.rounds = self.shown = 0

    def tuned(self, ways: Mapping[str, str], timed: Timed) -> None:
        tell(told(ways, timed))

    def begins(self, rounds: int, done: int) -> None:
        self.rounds, self.shown = rounds, 0
        if done == rounds:
            tell(nothing_left(rounds))

    def client_failed(self, failure: Failure) -> None:
        if failure.round != self.shown:  # one line per round: a thousand clients may fail alike
            self.shown = failure.round
            tell(str(failure))

    def ends(self, metrics: Sequence[Record]) -> None:
        if sentence := left_out(metrics):
            tell(sentence)

    def round_done(self, record: Record) -> None:
        measure = headline_of(record)
        scores = {level: value for level, value in shown_scores(record).items() if value is not None}
        if scores:
            shown = ", ".join(f"{level} {figure(measure, value)}" for level, value in scores.items())
            named = "" if measure == ACCURACY else f"{measure} "
            tell(f"round {record['round']}/{self.rounds}: {named}{shown}")


def tell(sentence: str) -> None:
    """A line on stderr."""
    print(sentence, file=sys.stderr, flush=True)


def nothing_left(rounds: int) -> str:
    """What is said of a run that has no round left to play."""
    return f"{rounds} of {rounds} rounds are done already; nothing is trained. More rounds make the run longer."


def left_out(metrics: Sequence[Record]) -> str:
    """How many updates could not be used and why, the commonest reason first; empty if all could."""
    failed = [(each, record["round"]) for record in metrics for each in record["failed"]]
    if not failed:
        return ""
    (reason, count), *others = Counter(each["reason"] for each, _ in failed).most_common()
    first, round = next((each, round) for each, round in failed if each["reason"] == reason)
    total = sum(record["clients"] for record in metrics)
    who = f"'{first['name']}'" if "name" in first else first["client"]
    more = f"; {len(others)} other reason{'s are' if len(others) > 1 else ' is'} in the metrics" if others else ""
    return (
        f"{len(failed)} of {total} updates were left out. {count} times: {reason} "
        f"(first client {who} of level '{first['level']}' in round {round}){more}"
    )
