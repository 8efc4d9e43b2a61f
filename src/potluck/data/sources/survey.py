"""What is on disk: where, how big, whether it is what was published, and how to get what is missing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from potluck.core.errors import DataError
from potluck.data.readers.files import blocks, packed_or_not
from potluck.data.sources.find import VARIABLE, data_folder, locate
from potluck.data.sources.source import About, Layout, Source

Checksum = Literal["verified", "differs", "not verified", "missing"]


@dataclass(frozen=True)
class Found:
    """One line of the survey."""

    about: About
    place: Path | None
    size: int  # bytes on disk
    checksum: Checksum
    detail: str  # which file differs, or how to get what is missing


def digest(content: Iterable[bytes], algorithm: str) -> str:
    """A checksum as it is written down: algorithm, colon, hexadecimal digits."""
    found = hashlib.new(algorithm, usedforsecurity=False)
    for block in content:
        found.update(block)
    return f"{algorithm}:{found.hexdigest()}"


def survey_of(sources: Iterable[Source], root: Path | str | None) -> list[Found]:
    """What is there of these sources."""
    folder = data_folder(root) if root is not None or VARIABLE in os.environ else None
    return [look(source, folder) for source in sources]


def look(source: Source, root: Path | None) -> Found:
    """What is there of one source."""
    try:
        layout, place = locate(source, root)
    except DataError:
        return Found(source.about, None, 0, "missing", source.about.how_to_get)
    files = {name: packed_or_not(place / name) for name in layout.files}
    checksum, detail = verify(layout, files)
    return Found(source.about, place, sum(size_of(path) for path in files.values()), checksum, detail)


def verify(layout: Layout, files: dict[str, Path]) -> tuple[Checksum, str]:
    """Whether the files are what was published; of a packed file the content counts, not the packing."""
    for name, path in files.items():
        if expected := layout.files[name]:
            try:
                found = digest(blocks(path, unpack=not name.endswith(".gz")), expected.partition(":")[0])
            except DataError as error:
                return "differs", str(error)
            if found != expected:
                return "differs", f"{path} is not the published file"
    if all(layout.files.values()):
        return "verified", ""
    return "not verified", "no published checksum is known for every file"


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return (
        sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else path.stat().st_size
    )
