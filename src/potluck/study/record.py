"""A run on disk: what it was asked, what happened, where it stands, what came out.

config.toml            the resolved config, before the first round
costs.json             what each level costs
tuning.json            the seconds of each way to train, if ways were timed
metrics.jsonl          one line per round
checkpoint/            the state after the last finished round
personal/              what stays on clients, a file each, if the method keeps anything there
final.safetensors      the server's state at the end
models/<level>.safetensors
"""

from __future__ import annotations

import fcntl
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from potluck.core.checkpoint import read, save, write_atomically
from potluck.core.errors import RunError
from potluck.core.tensors import state_of
from potluck.core.types import Tensors
from potluck.core.ways.step import Step, same_ways
from potluck.core.ways.way import PLAIN
from potluck.parts.cost.level import LevelCost
from potluck.study.config import differences, write_toml
from potluck.study.schema import Table


@dataclass(frozen=True)
class Progress:
    """Where a run stands: all that a resume needs."""

    rounds_done: int
    state: Tensors
    metrics_bytes: int


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint" / "latest.safetensors"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def final(self) -> Path:
        return self.path / "final.safetensors"

    @property
    def personal(self) -> Path:
        return self.path / "personal"

    def model(self, level: str) -> Path:
        """Where the model of a level is, once the run is finished."""
        return self.path / "models" / f"{level}.safetensors"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory, so that no two runs write to it; the lock ends with the process, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR)
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {error.strerror}; choose another directory") from error
        with os.fdopen(handle):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunError(f"{self.path} is in use by another run; wait for it, or choose another") from error
            yield

    def begin(self, config: Table, costs: list[LevelCost], resume: bool) -> Progress | None:
        """Claim the directory for this config; where an earlier run of it stands, if it is to be resumed."""
        if self.config.exists():
            if not resume:
                raise RunError(f"{self.path} already holds a run; add --resume to continue it, or choose another --out")
            self.require_same(config)
        elif self.checkpoint.exists():
            raise RunError(
                f"{self.path} holds a run whose {self.config.name} is missing; restore it, or choose another"
            )
        if self.checkpoint.exists():
            return self.rewind()
        write_atomically(self.path / "costs.json", json.dumps([asdict(cost) for cost in costs], indent=1).encode())
        write_atomically(self.metrics, b"")
        if not self.config.exists():  # one that is there may say already which way to train is the fastest
            write_atomically(self.config, write_toml(config).encode())
        return None

    def require_same(self, config: Table) -> None:
        """Refuse to continue a run of another config; where clients run is free to change, how they train is not."""
        there = read_toml(self.config)
        if weights_of(there) != weights_of(config):
            raise RunError(f"{self.path} holds a run that began with other weights of the network; give it the same")
        changed = differences({**there, "engine": {}}, {**config, "engine": {}})
        levels = config.get("fleet", {}).get("levels", {})
        if not changed and not same_ways(step_of(there), step_of(config), levels):
            changed = [
                f"engine.step is {step_of(there)!r} there and {step_of(config)!r} here ('counted' and 'auto' take over "
                "the first)"
            ]
        if changed:
            raise RunError(f"{self.path} holds a run of another config: {'; '.join(changed)}")

    def step(self) -> Step:
        """How the run's clients are trained."""
        return step_of(read_toml(self.config))

    def settle(self, ways: dict[str, str], timed: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Write down how the run's clients are trained, and the seconds by which that was chosen, if it was."""
        config = read_toml(self.config)
        config["engine"] = {**config.get("engine", {}), "step": ways}
        if timed is not None:
            write_atomically(self.path / "tuning.json", json.dumps(timed, indent=1).encode())
        write_atomically(self.config, write_toml(config).encode())

    def rewind(self) -> Progress:
        """Where the run stands, with the metrics cut back to that point."""
        progress = self.progress()
        if not self.metrics.exists() or self.metrics.stat().st_size < progress.metrics_bytes:
            raise RunError(
                f"{self.metrics} is shorter than when {self.checkpoint} was written; restore it, or start over"
            )
        try:
            os.truncate(self.metrics, progress.metrics_bytes)
        except OSError as error:
            raise RunError(f"cannot write {self.metrics}: {error.strerror}") from error
        return progress

    def progress(self) -> Progress:
        """Where the run stands."""
        state, about = read(self.checkpoint)
        return Progress(int(about["rounds_done"]), state, int(about["metrics_bytes"]))

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a round's line to the metrics and force it to disk."""
        try:
            with self.metrics.open("ab") as file:
                file.write(json.dumps(record).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(f"cannot write {self.metrics}: {error.strerror}") from error

    def keep(self, rounds_done: int, state: Tensors) -> None:
        """Write the checkpoint; the metrics' length goes into it, so that both always agree."""
        save(self.checkpoint, state, {"rounds_done": rounds_done, "metrics_bytes": self.metrics.stat().st_size})

    def finish(self, state: Tensors, models: Mapping[str, nn.Module], rounds: int) -> None:
        """Write what came out: a plain model per level, and the server's state last of all."""
        for level, net in models.items():
            save(self.model(level), state_of(net), {"level": level, "rounds_done": rounds})
        save(self.final, state, {"rounds_done": rounds})

    def records(self) -> list[dict[str, Any]]:
        """The metrics, one record per finished round."""
        try:
            lines = self.metrics.read_bytes().splitlines()
        except OSError as error:
            raise RunError(f"{self.path} holds no run: cannot read {self.metrics} ({error.strerror})") from error
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise RunError(f"{self.metrics} is damaged: {error}") from error

    def costs(self) -> list[dict[str, Any]]:
        """What each level costs, as counted before the first round."""
        try:
            found: list[dict[str, Any]] = json.loads((self.path / "costs.json").read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise RunError(f"cannot read {self.path / 'costs.json'}: {error}") from error
        return found


def weights_of(config: Table) -> object:
    """The digest of a ready-made network's weights, if there was one."""
    return config.get("recipe", {}).get("weights")


def step_of(config: Table) -> Step:
    """How a config has clients trained."""
    step: Step = config.get("engine", {}).get("step", PLAIN)
    return step


def read_toml(path: Path) -> Table:
    """A TOML file of ours, or an error that names it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read {path}: {error}") from error
