"""One of many runs: what it is called, and what it is asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from potluck.core.errors import RunError
from potluck.study.config import Config, differences, parse_config
from potluck.study.record import RunDirectory
from potluck.study.schema import Origin, Table


@dataclass(frozen=True)
class Entry:
    """A run of a series; its directory has its name."""

    name: str
    table: Table

    def config(self, trust: bool = False) -> Config:
        """Its settings, every one checked."""
        return parse_config(self.table, Origin(trusted=trust))


@dataclass(frozen=True)
class Stage:
    """How far a run has come."""

    entry: Entry
    path: Path
    done: int
    rounds: int
    finished: bool


def stages(entries: Iterable[Entry], folder: Path, trust: bool = False) -> list[Stage]:
    """How far each run has come; a directory with another experiment is refused."""
    return [stage_of(entry, folder / entry.name, trust) for entry in entries]


def stage_of(entry: Entry, path: Path, trust: bool) -> Stage:
    """How far a run has come."""
    config, run = entry.config(trust), RunDirectory(path)
    if path.is_symlink():
        raise RunError(
            f"{path} is a link to {path.readlink()}, but the runs of a series are written below its folder alone; put "
            "the run itself there, or choose another folder with --out"
        )
    if not run.config.exists():
        return Stage(entry, path, 0, config.task.rounds, False)
    there, rounds = run.settings(), config.task.rounds
    done = len(run.records()) if run.metrics.exists() else 0
    finished = done >= rounds  # the config and metrics alone may be kept of a finished run
    if run.checkpoint.exists():
        finished = finished and run.final.exists()
    elif not finished:
        done = 0
    if finished:  # settings that were not there yet have their defaults; a run that goes on must have all of them
        there = parse_config(asked(there), Origin(run.config, trusted=trust)).resolved()
    changed = differences(asked(there), asked(config.resolved()))
    if changed:
        raise RunError(
            f"{path} holds another experiment than the one asked for: {'; '.join(changed[:5])}; choose another folder "
            "with --out, or move this one away"
        )
    return Stage(entry, path, done, rounds, finished)


def asked(config: Table) -> Table:
    """What a config asks for: without where clients run, and what the run found out."""
    return {key: value for key, value in config.items() if key not in ("engine", "recipe")}
