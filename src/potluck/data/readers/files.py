"""Bytes and text of files and of archive members."""

from __future__ import annotations

import gzip
import json
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from potluck.core.errors import DataError


def packed_or_not(path: Path) -> Path:
    """The file itself or, if only that is there, the one with `.gz` added."""
    packed = path.with_name(path.name + ".gz")
    return packed if packed.exists() and not path.exists() else path


def read_bytes(path: Path) -> bytes:
    """The content of a file; a name that ends in `.gz` is unpacked on the way."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is truncated or damaged ({error}); get it again") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


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
    except ValueError as error:
        raise DataError(f"{path} is truncated or no JSON: {error}") from error


def read_members(archive: Path, names: Iterable[str]) -> list[bytes]:
    """The content of these files inside a `.tar.gz`, read in memory."""
    wanted = list(names)
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                file = tar.extractfile(member) if member.name in wanted else None
                if file is not None:
                    found[member.name] = file.read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{archive} is truncated or damaged ({error}); get it again") from error
    missing = [name for name in wanted if name not in found]
    if missing:
        raise DataError(f"{archive} lacks {missing[0]}: it is not the archive its name says")
    return [found[name] for name in wanted]
