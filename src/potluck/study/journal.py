"""The metrics of a run, a line per round, and a digest of them that grows line by line."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from potluck.core.errors import RunError
from potluck.study.files import opened, parsed, require_shallow
from potluck.study.seal import Seal
from potluck.study.watchers import Record

LONGEST_LINE = 1 << 24  # bytes: a hundred thousand failures take less
PIECE = 1 << 20  # bytes read at a time


class Journal:
    """metrics.jsonl of a run that is being played."""

    def __init__(self, path: Path, length: int) -> None:
        """The journal that goes on after the first `length` bytes, which are there."""
        self.path, self.length, self.sum = path, length, hashlib.sha256()
        left = length
        if left:
            with opened(path) as file:
                while piece := file.read(min(PIECE, left)):
                    self.sum.update(piece)
                    left -= len(piece)
        if left:
            raise RunError(f"{path} is shorter than when the checkpoint was written; restore it, or start over")

    @property
    def digest(self) -> str:
        return self.sum.hexdigest()

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a round's line and force it to disk."""
        line = json.dumps(record).encode() + b"\n"
        try:
            with self.path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror}") from error
        self.sum.update(line)
        self.length += len(line)

    def cut(self) -> None:
        """Cut off what was written after the checkpoint."""
        try:
            if self.path.stat().st_size > self.length:
                os.truncate(self.path, self.length)
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror}") from error


def sealed(path: Path, seal: Seal) -> Journal:
    """The journal as it was when a checkpoint was written; one that was changed since is refused."""
    found = Journal(path, seal.metrics_bytes)
    if found.digest != seal.metrics_sha256:
        raise RunError(
            f"{path} is not what it was when the checkpoint was written: it is damaged, or of another run; restore it, "
            "or start over in another directory"
        )
    return found


def sealed_records(path: Path, seal: Seal) -> list[Record]:
    """The records of the rounds that a checkpoint counts."""
    found = read_records(path, sealed(path, seal).length)
    if len(found) != seal.rounds_done:
        raise RunError(
            f"{path} has {len(found)} rounds, but the checkpoint says that {seal.rounds_done} are done; restore them, "
            "or start over in another directory"
        )
    return found


def read_records(path: Path, length: int | None = None) -> list[Record]:
    """The records in the first `length` bytes; all if no length is given."""
    found: list[Record] = []
    with opened(path) as file:
        while (length is None or file.tell() < length) and (line := file.readline(LONGEST_LINE)):
            found.append(record_in(line, len(found) + 1, path))
    return found


def record_in(line: bytes, round: int, path: Path) -> Record:
    """The record of a round in its line."""
    record = parsed(line, f"{path}, line {round},")
    require_shallow(record, path)
    if not isinstance(record, dict) or type(record.get("round")) is not int or record["round"] != round:
        raise RunError(f"{path} is damaged: line {round} is not the record of round {round}; restore it")
    return record
