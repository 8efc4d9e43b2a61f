"""Unpack a fetched archive: all of it or nothing, and no more than an honest archive can hold."""

from __future__ import annotations

import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from potluck.core.errors import DataError
from potluck.data.readers.files import DENSEST, most_in, open_tar


def unpack(archive: Path) -> None:
    """Unpack beside the archive: first elsewhere, then file by file into place, so that no half file is ever seen."""
    try:
        with TemporaryDirectory(prefix=".unpacking-", dir=archive.parent) as folder:
            extract(archive, Path(folder))
            put_in_place(Path(folder), archive.parent)
    except OSError as error:
        raise DataError(f"cannot write {error.filename or archive.parent}: {error.strerror or error}") from error


def extract(archive: Path, folder: Path) -> None:
    """The content of an archive in a folder of its own."""
    try:
        if archive.suffix == ".zip":
            extract_zip(archive, folder)
        else:
            extract_tar(archive, folder)
    except OSError:  # of the disk; those of the archive are told as `DataError`
        raise
    except DataError as error:
        raise DataError(f"{archive} cannot be unpacked: {error}") from error
    except Exception as error:  # a damaged archive can raise anything
        raise DataError(f"{archive} cannot be unpacked: {error}; delete it and get it again") from error


def extract_zip(archive: Path, folder: Path) -> None:
    """The content of a zip archive; no file becomes larger than the archive's list says."""
    with zipfile.ZipFile(archive) as packed:
        require_honest(sum(entry.file_size for entry in packed.infolist()), archive)
        packed.extractall(folder)


def extract_tar(archive: Path, folder: Path) -> None:
    """The content of a tar archive, file by file."""
    size = 0
    with open_tar(archive) as tar:
        for member in tar:
            size += member.size  # of one with holes more than the archive has
            require_honest(size, archive)
            tar.extract(member, folder, filter="data")


def require_honest(size: int, archive: Path) -> None:
    """Refuse an archive that would fill the disk."""
    if size > most_in(archive):
        raise DataError(f"it holds more than {DENSEST} times its own size, as no data set does")


def put_in_place(folder: Path, root: Path) -> None:
    """Move what is in a folder below another, once it is clear that nothing there is in the way."""
    found = [(file, root / file.relative_to(folder)) for file in sorted(folder.rglob("*"))]
    for file, place in found:
        if place.exists() and place.is_dir() != file.is_dir():
            found_kind, kind = ("folder", "file") if place.is_dir() else ("file", "folder")
            raise DataError(f"{place} is a {found_kind}, but a {kind} of that name is to be unpacked; move it away")
    for file, place in found:
        if file.is_dir():
            place.mkdir(exist_ok=True)
        else:
            file.replace(place)
