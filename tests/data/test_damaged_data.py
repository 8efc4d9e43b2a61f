"""Damaged data files are read or refused, soon, and with no more memory than twice what whole ones take."""

from __future__ import annotations

import gzip
import signal
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from peak_memory import MEGABYTE, measured
from small_sets import KINDS, Rng

from potluck.core.errors import DataError
from potluck.data import sources

PATIENCE = 60  # seconds; what reads at all reads in a few milliseconds
SLACK = 4 * MEGABYTE  # blocks and what a packed file may hold whatever its size
FEW, MANY = 3, 20  # files of each kind


def flip(content: bytes, rng: Rng) -> bytes:
    """Some bytes are others."""
    found = bytearray(content)
    for place in rng.integers(0, len(found), rng.integers(1, 9)):
        found[place] = rng.integers(0, 256)
    return bytes(found)


def flip_early(content: bytes, rng: Rng) -> bytes:
    """Some bytes of the header are others."""
    return flip(content[:64], rng) + content[64:]


def cut(content: bytes, rng: Rng) -> bytes:
    """The end is missing."""
    return content[: rng.integers(0, len(content))]


def drop(content: bytes, rng: Rng) -> bytes:
    """A piece is missing."""
    start, end = sorted(rng.integers(0, len(content), 2))
    return content[:start] + content[end:]


def repeat(content: bytes, rng: Rng) -> bytes:
    """A piece is there several times."""
    start, end = sorted(rng.integers(0, len(content), 2))
    return content[:end] + content[start:end] * int(rng.integers(1, 4)) + content[end:]


def lie(content: bytes, rng: Rng) -> bytes:
    """A number, perhaps a length, is huge."""
    place = int(rng.integers(0, min(len(content), 200)))
    number = rng.choice([0x7FFFFFFF, 0xFFFFFFFF, 1 << 20, 0])
    return content[:place] + struct.pack(rng.choice(["<I", ">I"]), number) + content[place + 4 :]


def swap(content: bytes, rng: Rng) -> bytes:
    """It is another kind of file."""
    return [b"", b"\n" * 1000, rng.bytes(1000), b"[" * 5000, b"\0" * 5000][int(rng.integers(5))]


def inside(damage: Callable[[bytes, Rng], bytes]) -> Callable[[bytes, Rng], bytes]:
    """The same damage to what is packed, packed again; a plain file is damaged itself."""

    def damaged(content: bytes, rng: Rng) -> bytes:
        if content[:2] != b"\x1f\x8b":
            return damage(content, rng)
        return gzip.compress(damage(gzip.decompress(content), rng))

    return damaged


DAMAGES = [flip, flip_early, cut, drop, repeat, lie, swap, *map(inside, (flip, flip_early, cut, drop, repeat, lie))]


@contextmanager
def patience() -> Iterator[None]:
    """Fail instead of waiting for ever."""

    def give_up(number: int, frame: object) -> None:
        raise TimeoutError(f"no end after {PATIENCE} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def load(name: str, root: Path) -> tuple[str, int]:
    """The complaint about a data set, if there is one, and the bytes that it took to read it."""
    complaint = ""
    with patience(), measured() as peak, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            sources.load(name, root)
        except DataError as error:
            complaint = str(error)
    return complaint, peak.bytes


def files_in(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def fuzz(kind: str, root: Path, seeds: range) -> list[str]:
    """Damage one file of a data set at a time; the complaints."""
    if kind == "images":
        pytest.importorskip("PIL.Image", reason="image folders need Pillow")
    name, make = KINDS[kind]
    make(root, np.random.default_rng(0))
    files = files_in(root)
    complaint, honest = load(name, root)
    assert complaint == ""
    complaints = []
    for seed in seeds:
        for kept in set(files_in(root)) - set(files):
            kept.unlink()  # decoded images
        rng = np.random.default_rng([7, seed])
        path = files[int(rng.integers(len(files)))]
        content = path.read_bytes()
        path.write_bytes(DAMAGES[int(rng.integers(len(DAMAGES)))](content, rng))
        complaint, taken = load(name, root)
        assert taken < 2 * honest + SLACK, (seed, path)
        assert len(complaint) < 1000, (seed, path)
        complaints.append(complaint)
        path.write_bytes(content)
    return complaints


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_damaged_files(kind: str, tmp_path: Path) -> None:
    fuzz(kind, tmp_path, range(FEW))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files(kind: str, tmp_path: Path) -> None:
    complaints = fuzz(kind, tmp_path, range(100, 100 + MANY))
    assert any(complaints)
