"""The rounds of a run: played, scored, recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from potluck.core.clock import Clock
from potluck.core.desk import ready_model
from potluck.core.engine import Engine
from potluck.core.errors import RunError
from potluck.core.fit import learning_rate
from potluck.core.insight import Diagnoses
from potluck.core.networks import unshare
from potluck.core.server import Failure, Ledger, Server, draw_cohort, first_state
from potluck.core.store import Memory, Store
from potluck.core.types import Client, Tensors
from potluck.core.ways.way import Way
from potluck.parts.cost.level import LevelCost
from potluck.study.experiment import Experiment
from potluck.study.record import Progress
from potluck.study.recording import Recording
from potluck.study.result import Profile, Result
from potluck.study.scoring import Scored, score_levels
from potluck.study.watchers import Record, Watcher

PATIENCE = 3  # rounds without a single usable update before a run is stopped


@dataclass
class Play:
    """A run that is being played: what stays the same, and where it stands."""

    experiment: Experiment
    server: Server
    store: Store
    costs: list[LevelCost]
    watcher: Watcher
    recording: Recording | None
    state: Tensors
    done: int
    metrics: list[Record]
    cohorts: dict[int, list[Client]] = field(default_factory=dict)  # drawn before their rounds
    scored: Scored | None = None  # of the last round, if it was evaluated
    busy: float = 0.0  # seconds that clients trained
    began: float = field(default_factory=time.perf_counter)

    @classmethod
    def begun(
        cls,
        experiment: Experiment,
        engine: Engine,
        costs: list[LevelCost],
        watcher: Watcher,
        clock: Clock,
        recording: Recording | None = None,
        progress: Progress | None = None,
    ) -> Play:
        """A run that is ready for its next round, the first or the one after its checkpoint."""
        done = progress.rounds_done if progress else 0
        store: Store = recording.store if recording else Memory()
        with clock.spent("transport"):
            engine.open(experiment.site, experiment.desk, store, clock)
        server = Server(
            experiment.recipe,
            engine,
            experiment.settings.guard,
            clock,
            macs={cost.level: cost.macs for cost in costs},
            stacks={level: Way.called(way).stack for level, way in experiment.recipe.ways.items()},
            client_done=watcher.client_done,
            client_failed=naming(watcher.client_failed, experiment.names)
            if experiment.names
            else watcher.client_failed,
        )
        state = progress.state if progress else first_state(experiment.method, experiment.site.context(0))
        records = recording.records() if recording else []
        return cls(experiment, server, store, costs, watcher, recording, state, done, records)

    @property
    def clock(self) -> Clock:
        return self.server.clock

    def to_the_end(self) -> Result:
        """Play the rounds that are left."""
        rounds = self.experiment.task.rounds
        self.watcher.begins(rounds, self.done)
        for round in range(self.done, rounds):
            self.play(round)
        result = self.finished()
        self.watcher.ends(self.metrics)
        return result

    def play(self, round: int) -> None:
        """Play one round, score it if it is due, and write it down."""
        started, before = time.perf_counter(), dict(self.clock.seconds)
        ctx = self.experiment.site.context(round)
        self.draw(round)
        cohort = self.cohorts.pop(round)
        self.state, ledger = self.server.play(self.state, cohort, ctx, meanwhile=partial(self.draw, round + 1))
        self.busy += ledger.client_seconds
        trained = time.perf_counter()
        self.scored = self.score(round) if self.is_due(round) else None
        record = describe(self.experiment, round, ledger, self.scored)
        with self.clock.spent("records"):
            method = self.experiment.method
            record["method"] = (
                method.diagnose(self.state, ctx, ledger.per_level) if isinstance(method, Diagnoses) else {}
            )
        record |= {
            "seconds": time.perf_counter() - started,
            "seconds_training": trained - started,
            "seconds_evaluation": time.perf_counter() - trained,
            "seconds_of_clients": ledger.client_seconds,
            "seconds_by_part": {part: total - before.get(part, 0.0) for part, total in self.clock.seconds.items()},
        }
        self.write(round, record)
        self.watcher.round_done(record)
        require_hope(self.metrics)

    def draw(self, round: int) -> None:
        """Draw the cohort of a round, if there is such a round and nobody did."""
        if round < self.experiment.task.rounds and round not in self.cohorts:
            with self.clock.spent("planning"):
                experiment, ctx = self.experiment, self.experiment.site.context(round)
                self.cohorts[round] = draw_cohort(
                    experiment.method, experiment.fleet, experiment.settings.fleet.cohort, self.server.macs, ctx
                )

    def is_due(self, round: int) -> bool:
        """Whether a round is evaluated."""
        every, rounds = self.experiment.settings.task.evaluate_every, self.experiment.task.rounds
        return (round + 1) % every == 0 or round + 1 == rounds

    def score(self, round: int) -> Scored:
        """Score the models of a round."""
        with self.clock.spent_in_all("evaluation"):
            return score_levels(self.experiment, self.server, self.state, round)

    def write(self, round: int, record: Record) -> None:
        """Write a round down."""
        self.metrics.append(record)
        with self.clock.spent("records"):
            if self.recording:
                self.recording.write(record, round + 1, self.state)
            else:
                self.store.commit()

    def finished(self) -> Result:
        """What came out."""
        experiment, last = self.experiment, self.experiment.task.rounds - 1
        scored = self.scored or self.score(last)
        with self.clock.spent_in_all("evaluation"):
            levels = experiment.admitted() if experiment.method.shares_model else []
            models = {
                level.name: unshare(
                    ready_model(
                        experiment.recipe, self.state, level, last, scored.statistics[level.name], experiment.site.memo
                    )
                )
                for level in levels
            }
        with self.clock.spent("records"):
            if self.recording:
                self.recording.files.finish(self.state, models, experiment.task.rounds, self.recording.run)
        total = time.perf_counter() - self.began
        profile = Profile(dict(self.clock.seconds), total, self.busy, self.server.engine.places)
        directory = self.recording.files.path if self.recording else None
        return Result(self.state, models, self.metrics, self.costs, profile, directory, experiment, self.store)


def require_hope(metrics: Sequence[Record]) -> None:
    """Stop a run that makes no progress: every update of the last rounds was refused."""
    last = metrics[-PATIENCE:]
    if len(last) == PATIENCE and all(0 < record["clients"] == record["failures"] for record in last):
        reason = last[-1]["failed"][0]["reason"]
        way_out = "if training diverges, lower train.lr or set train.clip (1.0 bounds the gradient's norm)"
        if "guard.bound" in reason:
            way_out += "; if it does not, raise guard.bound"
        raise RunError(f"none of the updates of the last {PATIENCE} rounds can be used, since {reason}; {way_out}")


def describe(experiment: Experiment, round: int, ledger: Ledger, scored: Scored | None) -> Record:
    """A round's line in the metrics; rounds are counted from 1."""
    levels: dict[str, Record] = {}
    for level in experiment.task.levels:
        score = scored.scores.get(level.name, {}) if scored else {}
        unknown = dict.fromkeys((*experiment.task.goal.means[:2], *experiment.task.measures))
        levels[level.name] = {**unknown, **score, "clients": ledger.per_level.get(level.name, 0)}
    asked = scored.ledger if scored else Ledger()
    return {
        "round": round + 1,
        "levels": levels,
        "clients": ledger.clients,
        "failures": len(ledger.failures),
        "failed": [failed_table(each, experiment.names) for each in ledger.failures],
        "bytes_down": ledger.bytes_down,
        "bytes_up": ledger.bytes_up,
        "macs": ledger.macs,
        "evaluation_bytes_down": asked.bytes_down,
        "evaluation_bytes_up": asked.bytes_up,
        "evaluation_failures": len(asked.failures),
        "learning_rate": learning_rate(experiment.task.train, round, experiment.task.rounds),
        **({"validation": scored.validation, "rest": scored.rest} if scored and scored.validation else {}),
    }


def failed_table(failure: Failure, names: Sequence[str]) -> Record:
    """An update that was left out, in a round's line of the metrics."""
    named = {"name": names[failure.client]} if names else {}
    return {"client": failure.client, **named, "level": failure.level, "reason": failure.reason}


def naming(tell: Callable[[Failure], None], names: Sequence[str]) -> Callable[[Failure], None]:
    """`tell`, with the name of the client."""
    return lambda failure: tell(replace(failure, name=names[failure.client]))
