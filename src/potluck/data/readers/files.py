"""Bytes and text of files and of archive members; no more is unpacked than an honest file can hold."""

from __future__ import annotations

import gzip
import json
import stat
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path

from potluck.core.errors import DataError

BLOCK = 1 << 20
DENSEST = 64  # times its own size that a packed file may hold: data sets reach 5, a file made to fill memory 1,000
SMALL = 1 << 20  # bytes that any packed file may hold


def packed_or_not(path: Path) -> Path:
    """The file itself or, if only that is there, the one with `.gz` added."""
    packed = path.with_name(path.name + ".gz")
    return packed if packed.exists() and not path.exists() else path


def open_file(path: Path) -> BufferedReader:
    """A file that is one: a device or a pipe has no end, or never begins."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError(f"cannot read {path}: it is not a file, but a {'folder' if path.is_dir() else 'device'}")
        return path.open("rb")
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def most_in(packed: Path) -> int:
    """How many bytes a packed file may hold."""
    return SMALL + DENSEST * packed.stat().st_size


def blocks(path: Path, unpack: bool = True) -> Iterator[bytes]:
    """The content of a file, a block at a time; a name that ends in `.gz` is unpacked on the way."""
    with open_file(path) as file:
        try:
            if not unpack or path.suffix != ".gz":
                while block := file.read(BLOCK):
                    yield block
                return
            room = most_in(path)
            with gzip.GzipFile(fileobj=file) as packed:
                while block := packed.read(BLOCK):
                    room -= len(block)
                    if room < 0:
                        raise DataError(f"{path} holds more than {DENSEST} times its own size, as no data set does")
                    yield block
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{path} is truncated or damaged ({error}); get it again") from error
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def read_bytes(path: Path) -> bytearray:
    """The content of a file; a name that ends in `.gz` is unpacked on the way."""
    content = bytearray()
    for block in blocks(path):
        content += block
    return content


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, or in Latin-1 as old Project Gutenberg files are."""
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return content.decode("latin-1").replace("\r\n", "\n")


def read_json(path: Path) -> object:
    """What a JSON file says."""
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is truncated or no JSON: {error}") from error


class Flow:
    """The unpacked content of a file as `tarfile` reads it: on and on, never back."""

    def __init__(self, path: Path) -> None:
        self.blocks = blocks(path)
        self.rest = memoryview(b"")

    def read(self, size: int) -> bytes:
        if not self.rest:
            self.rest = memoryview(next(self.blocks, b""))
        taken, self.rest = self.rest[:size], self.rest[size:]
        return bytes(taken)


def open_tar(archive: Path) -> tarfile.TarFile:
    """A `.tar` or `.tar.gz`, read from its beginning to its end."""
    return tarfile.open(fileobj=Flow(archive), mode="r|", bufsize=BLOCK)  # type: ignore[call-overload, no-any-return]


def read_members(archive: Path, names: Iterable[str]) -> list[bytes]:
    """The content of these files inside a `.tar.gz`, read in memory."""
    wanted = list(names)
    found: dict[str, bytes] = {}
    room = most_in(archive)  # a member with holes takes little of the archive
    try:
        with open_tar(archive) as tar:
            for member in tar:
                if member.name in wanted and member.isreg():
                    room -= member.size
                    if room < 0:
                        raise DataError(f"{archive} holds more than {DENSEST} times its own size, as no data set does")
                    file = tar.extractfile(member)
                    found[member.name] = file.read() if file else b""
    except DataError:
        raise
    except Exception as error:  # a damaged archive can raise anything
        raise DataError(f"{archive} is truncated or damaged ({error}); get it again") from error
    missing = [name for name in wanted if name not in found]
    if missing:
        raise DataError(f"{archive} lacks {missing[0]}: it is not the archive its name says")
    return [found[name] for name in wanted]
