"""What stays on clients, kept for them by a simulation: a file each, written only when it changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol

from potluck.core.checkpoint import force_directory, read, save
from potluck.core.errors import RunError
from potluck.core.tensors import copied, same_tensors
from potluck.core.types import Tensors

SUFFIX = ".safetensors"
TOGETHER = 1000  # clients whose files are in one folder, so that none has a million entries


class Store(Protocol):
    """Keeps what stays on each client between rounds."""

    def get(self, client: int) -> Tensors:
        """What stayed on a client; nothing if it was never asked to train."""

    def put(self, client: int, tensors: Tensors) -> None:
        """Keep this for a client."""

    def commit(self) -> None:
        """Make what was put since the last time last: the checkpoint of its round is written."""


class Memory:
    """Keeps everything in memory, for runs that are not recorded."""

    def __init__(self) -> None:
        self.kept: dict[int, Tensors] = {}

    def get(self, client: int) -> Tensors:
        return self.kept.get(client, {})

    def put(self, client: int, tensors: Tensors) -> None:
        self.kept[client] = copied(tensors)

    def commit(self) -> None:
        pass


def place_of(path: Path, client: int) -> Path:
    """Where a client's file is below a directory."""
    return path / f"{client // TOGETHER:03}" / f"{client}{SUFFIX}"


class Reading:
    """Looks at a folder that may be another run's, as of the rounds that are done, and changes nothing."""

    def __init__(self, path: Path, rounds_done: int) -> None:
        self.path, self.rounds_done = path, rounds_done

    def get(self, client: int) -> Tensors:
        for file in (self.path / "next" / f"{client}{SUFFIX}", place_of(self.path, client)):
            if file.exists():
                tensors, about = read(file)
                if int(about["rounds_done"]) <= self.rounds_done:
                    return tensors
        return {}

    def put(self, client: int, tensors: Tensors) -> None:
        raise RunError(f"{self.path} is only looked at; nothing is kept there for client {client}")

    def commit(self) -> None:
        pass


class Folder:
    """A file per client below a directory.

    What is put in a round waits in `next/` until the round's checkpoint is written, and is then renamed into its
    place. A run that is cut short in between finds both, and the number of rounds in a waiting file says whether it
    still counts.
    """

    def __init__(self, path: Path, rounds_done: int) -> None:
        self.path, self.waiting, self.rounds_done = path, path / "next", rounds_done
        if not rounds_done and path.exists():
            shutil.rmtree(path)  # of a run that ended before its first checkpoint
        for half in self.waiting.glob(".*.tmp"):  # of a write that was cut short
            half.unlink()
        settled = [int(read(file)[1]["rounds_done"]) <= rounds_done for file in self.files()]
        for file, counts in zip(self.files(), settled, strict=True):
            if not counts:
                file.unlink()
        self.promote()

    def files(self) -> list[Path]:
        """The files that wait for a checkpoint."""
        return sorted(self.waiting.glob(f"*{SUFFIX}"))

    def get(self, client: int) -> Tensors:
        for file in (self.waiting / f"{client}{SUFFIX}", place_of(self.path, client)):
            if file.exists():
                return read(file)[0]
        return {}

    def put(self, client: int, tensors: Tensors) -> None:
        if not same_tensors(tensors, self.get(client)):
            about = {"client": client, "rounds_done": self.rounds_done + 1}
            save(self.waiting / f"{client}{SUFFIX}", tensors, about)

    def commit(self) -> None:
        self.rounds_done += 1
        self.promote()

    def promote(self) -> None:
        """Put the waiting files into their places."""
        moves = {file: place_of(self.path, int(file.name.removesuffix(SUFFIX))) for file in self.files()}
        try:
            for file, place in moves.items():
                place.parent.mkdir(parents=True, exist_ok=True)
                file.rename(place)
            for folder in {place.parent for place in moves.values()} | {self.path for _ in moves}:
                force_directory(folder)
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {error.strerror or error}") from error
