"""A queue of runs: each is an ordinary run in a directory and a process of its own, which any later queue takes up.

What is done already is left alone, and what was begun is continued, so a queue may be stopped and started at any time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from potluck.core.checkpoint import write_atomically
from potluck.core.errors import ConfigError, RunError
from potluck.core.threads import cores
from potluck.series.entry import Stage
from potluck.study.config import write_toml

MANNERS = 30.0  # seconds in which a run that is stopped may finish what it writes
MISTAKE = 2  # the exit code of what the user asked wrongly: the reason is one sentence
GLANCE = 0.1  # seconds between two looks at whether a run is done
INTERRUPTED = 130
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Manner:
    """How the runs of a queue are played."""

    jobs: int = 1  # runs at a time
    trust: bool = False
    data_dir: Path | None = None

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ConfigError(f"--jobs is {self.jobs}, but it should be 1 or more, the number of runs at a time")


@dataclass
class Going:
    """A run that is being played."""

    stage: Stage
    process: subprocess.Popen[bytes]
    log: Path


@dataclass
class Queue:
    """Runs to be played, in order."""

    stages: Sequence[Stage]
    manner: Manner
    tell: Callable[[str], None]
    failed: dict[str, str] = field(default_factory=dict)  # why, by name
    going: list[Going] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)  # signals that asked the queue to stop

    def play(self) -> None:
        """Play what is not finished; a run that fails is noted, and the next one begins."""
        left = [stage for stage in self.stages if not stage.finished]
        finished = len(self.stages) - len(left)
        if finished:
            self.tell(f"{finished} of {len(self.stages)} runs are finished already.")
        with noted(self.asked):
            try:
                for number, stage in enumerate(left, start=finished + 1):
                    while len(self.going) >= self.manner.jobs:
                        self.wait()
                    begun = f", from round {stage.done + 1}" if stage.done else ""
                    self.tell(f"[{number}/{len(self.stages)}] {stage.entry.name}{begun}")
                    self.start(stage)
                while self.going:
                    self.wait()
            except BaseException:
                self.stop()
                raise

    def start(self, stage: Stage) -> None:
        """Start a run, which writes what it says to a file."""
        config, log = (stage.path.with_name(f"{stage.path.name}.{kind}") for kind in ("toml", "log"))
        write_atomically(config, write_toml(stage.entry.table).encode())
        try:
            log.unlink(missing_ok=True)  # an earlier one, or a link to a file that is not the queue's to write
            with log.open("xb") as file, deaf_to_ctrl_c():
                process = subprocess.Popen(
                    self.command(stage, config),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=file,
                )
            self.going.append(Going(stage, process, log))
        except OSError as error:
            raise RunError(f"cannot start {stage.entry.name}: {error.strerror} ({log})") from error

    def command(self, stage: Stage, config: Path) -> list[str]:
        """The command of a run; modules that lie in the working directory are not taken for Python's."""
        found = [sys.executable, "-P", "-m", "potluck", "run", str(config), "--out", str(stage.path)]
        found += ["--resume"] if (stage.path / "config.toml").exists() else []
        found += ["--trust"] if self.manner.trust else []
        found += ["--data-dir", str(self.manner.data_dir)] if self.manner.data_dir else []
        return found + (
            ["--set", f"engine.workers={max(1, cores() // self.manner.jobs)}"] if self.manner.jobs > 1 else []
        )

    def wait(self) -> None:
        """Wait until a run ends, or until the queue is asked to stop."""
        while all(each.process.poll() is None for each in self.going) and not self.asked:
            time.sleep(GLANCE)
        if self.asked:
            raise KeyboardInterrupt
        for each in [each for each in self.going if each.process.poll() is not None]:
            self.going.remove(each)
            self.end(each)

    def end(self, going: Going) -> None:
        """Note how a run ended."""
        code, name = going.process.returncode, going.stage.entry.name
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code:
            self.failed[name] = reason(code, going.log)
            self.tell(f"{name} failed: {self.failed[name]}")
        elif not going.log.stat().st_size:
            going.log.unlink()

    def stop(self) -> None:
        """Stop the runs that are being played; each writes down what it finished."""
        for each in self.going:
            if each.process.poll() is None:
                each.process.terminate()  # an interrupt is ignored below a shell's background jobs
        for each in self.going:
            try:
                each.process.wait(MANNERS)
            except subprocess.TimeoutExpired:
                os.kill(each.process.pid, signal.SIGKILL)
                each.process.wait()


@contextmanager
def noted(asked: list[int]) -> Iterator[None]:
    """Note the signals that ask this process to stop, instead of an exception.

    Python runs a handler between any two of its steps. An exception that it raises in a destructor or a callback is
    printed and forgotten, and one that it raises while a run starts would leave that run behind.
    """
    handlers = {number: signal.getsignal(number) for number in STOPS}
    ours = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    for number in ours:
        signal.signal(number, lambda number, frame: asked.append(number))  # what is ignored, as by nohup, stays ignored
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Keep Ctrl-C from processes that are started meanwhile: a terminal sends it to all; the queue stops its runs."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what is blocked stays so in a new process
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def reason(code: int, log: Path) -> str:
    """Why a run failed: a mistake in its own sentence, anything else by where it is told."""
    lines = log.read_text(errors="replace").strip().splitlines()
    if code == MISTAKE and lines:
        return lines[-1].removeprefix("potluck: ")
    return f"it was ended by signal {-code}; see {log}" if code < 0 else f"it ended with exit code {code}; see {log}"
