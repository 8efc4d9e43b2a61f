"""What stays on clients, kept for them by a simulation: a file each, written only when it changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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


@dataclass
class Roll:
    """Which clients have a file: how many, and a digest to which one can be added without knowing the others."""

    clients: int = 0
    sum: int = 0

    def add(self, client: int) -> None:
        self.clients += 1
        self.sum ^= int.from_bytes(hashlib.sha256(str(client).encode()).digest())

    @property
    def digest(self) -> str:
        return f"{self.sum:064x}"


def place_of(path: Path, client: int) -> Path:
    """Where a client's file is below a directory."""
    return path / f"{client // TOGETHER:03}" / f"{client}{SUFFIX}"


def client_of(file: Path) -> int | None:
    """Whose a file is, by its name; None if it is none of ours."""
    name = file.name.removesuffix(SUFFIX)
    return int(name) if file.name.endswith(SUFFIX) and name.isdecimal() and name == str(int(name)) else None


def settled(path: Path) -> dict[int, Path]:
    """The files that are in their places below a directory, by client."""
    found = ((client_of(file), file) for file in path.glob(f"*/*{SUFFIX}"))
    return {client: file for client, file in found if client is not None and file == place_of(path, client)}


def waiting(path: Path) -> dict[int, Path]:
    """The files that wait for the checkpoint of their round, by client."""
    found = {client_of(file): file for file in sorted((path / "next").glob(f"*{SUFFIX}"))}
    return {client: file for client, file in found.items() if client is not None}


def read_kept(file: Path, client: int, run: str) -> tuple[Tensors, int]:
    """What a file keeps, and how many rounds are done once it counts; the file of another client or run is refused."""
    tensors, about = read(file)
    if (about.get("client"), about.get("run")) != (client, run):
        raise RunError(f"{file} is not what this run keeps for client {client}: it is of another client or run")
    rounds = about.get("rounds_done")
    if type(rounds) is not int:
        raise RunError(f"{file} does not say of which round it is; restore it")
    return tensors, rounds


def require_past(file: Path, rounds: int, done: int) -> None:
    """Refuse a file of a round that the checkpoint does not know."""
    if rounds > done:
        raise RunError(
            f"{file} is of round {rounds}, but the checkpoint is of round {done}; if the run is going on, try again, "
            "else restore the checkpoint that belongs to it"
        )


@dataclass(frozen=True)
class Survey:
    """What a folder holds as of a round, before anything in it is changed."""

    counts: dict[int, Path]  # waiting files whose round has a checkpoint
    stale: list[Path]  # files of rounds that have none
    roll: Roll  # of the clients that have a file which counts


def survey(path: Path, rounds_done: int, run: str) -> Survey:
    """Look through a folder; with no round done, nothing in it counts."""
    placed, late = settled(path), waiting(path)
    halves = list((path / "next").glob(f".*{SUFFIX}.tmp"))  # of writes that were cut short
    if not rounds_done:
        return Survey({}, [*placed.values(), *late.values(), *halves], Roll())
    counts = {client: file for client, file in late.items() if read_kept(file, client, run)[1] <= rounds_done}
    roll = Roll()
    for client in {*placed, *counts}:
        roll.add(client)
    return Survey(counts, [*(file for client, file in late.items() if client not in counts), *halves], roll)


class Reading:
    """Looks at a folder that may be another run's, as of the rounds that are done, and changes nothing."""

    def __init__(self, path: Path, rounds_done: int, run: str = "") -> None:
        self.path, self.rounds_done, self.run = path, rounds_done, run

    def get(self, client: int) -> Tensors:
        waits, place = self.path / "next" / f"{client}{SUFFIX}", place_of(self.path, client)
        if waits.exists():
            tensors, rounds = read_kept(waits, client, self.run)
            if rounds <= self.rounds_done:
                return tensors
        if not place.exists():
            return {}
        tensors, rounds = read_kept(place, client, self.run)
        require_past(place, rounds, self.rounds_done)
        return tensors

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

    def __init__(self, path: Path, rounds_done: int, run: str = "", names: Sequence[str] = ()) -> None:
        self.path, self.rounds_done, self.run, self.names = path, rounds_done, run, names
        found = survey(path, rounds_done, run)
        self.roll = found.roll
        try:
            for file in found.stale:
                file.unlink()
        except OSError as error:
            raise RunError(f"cannot write to {path}: {error.strerror or error}") from error
        self.promote(found.counts)

    def get(self, client: int) -> Tensors:
        waits, place = self.path / "next" / f"{client}{SUFFIX}", place_of(self.path, client)
        for file, done in ((waits, self.rounds_done + 1), (place, self.rounds_done)):
            if file.exists():
                tensors, rounds = read_kept(file, client, self.run)
                require_past(file, rounds, done)
                return tensors
        return {}

    def put(self, client: int, tensors: Tensors) -> None:
        waits, place = self.path / "next" / f"{client}{SUFFIX}", place_of(self.path, client)
        if same_tensors(tensors, self.get(client)):
            return
        known = waits.exists() or place.exists()
        named = {"name": self.names[client]} if self.names else {}
        save(waits, tensors, {"client": client, **named, "run": self.run, "rounds_done": self.rounds_done + 1})
        if not known:
            self.roll.add(client)

    def commit(self) -> None:
        self.rounds_done += 1
        self.promote(waiting(self.path))

    def promote(self, files: dict[int, Path]) -> None:
        """Put waiting files into their places."""
        places = {client: place_of(self.path, client) for client in files}
        try:
            for client, file in files.items():
                places[client].parent.mkdir(parents=True, exist_ok=True)
                file.rename(places[client])
            for folder in folders(self.path, places.values()):
                force_directory(folder)
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {error.strerror or error}") from error


def folders(path: Path, places: Iterable[Path]) -> set[Path]:
    """The folders in which names have changed, when files were put into these places."""
    changed = {place.parent for place in places}
    return changed | {path} if changed else changed
