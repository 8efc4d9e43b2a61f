"""Get a data set from the web: resumed if it was cut off, verified, and whole or not there."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from potluck.core.errors import DataError
from potluck.data import sources
from potluck.data.readers.files import open_file
from potluck.data.sources import About, Download
from potluck.data.unpack import unpack

Progress = Callable[[str, int, int | None], None]  # file name, bytes so far, bytes in all if known

BLOCK = 1 << 16
TIMEOUT = 30.0
RANGE_NOT_SATISFIABLE = 416


class CutOffError(Exception):
    """The connection failed; trying again may help."""


def fetch(
    what: About | str,
    root: Path | str,
    progress: Progress = lambda name, done, total: None,
    tries: int = 5,
    pause: float = 2.0,
) -> list[Path]:
    """Download a data set's files below `root`, and unpack them if they are archives; returns where they are."""
    about = sources.about(what) if isinstance(what, str) else what
    if not about.downloads:
        raise DataError(f"{about.name} is not downloaded: {about.how_to_get}")
    paths = []
    for download in about.downloads:
        path = Path(root).expanduser() / download.path
        if not (path.exists() and matches(path, download.checksum)):
            get(download, path, progress, tries, pause)
        if download.unpack:
            unpack(path)
        paths.append(path)
    return paths


def get(download: Download, target: Path, progress: Progress, tries: int, pause: float) -> None:
    """One file, in as many goes as the connection needs; it gets its name when it is complete and verified."""
    if urlsplit(download.url).scheme not in ("http", "https"):
        raise DataError(f"{download.url} is neither http nor https")
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, tries + 1):
            try:
                receive(download.url, part, target.name, progress)
                break
            except CutOffError as error:
                if attempt == tries:
                    raise DataError(
                        f"{download.url} broke off {tries} times ({error}); run it again to go on from there"
                    ) from error
                time.sleep(pause * attempt)
        if not matches(part, download.checksum):
            part.unlink()
            raise DataError(f"{download.url} is not the published file: its checksum is not {download.checksum}")
        part.replace(target)
    except OSError as error:
        raise DataError(f"cannot write {error.filename or target}: {error.strerror or error}") from error


def receive(url: str, part: Path, name: str, progress: Progress) -> None:
    """Go on with a partial file where it ends, or start again if the server cannot; returns when it is complete."""
    done = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        with urlopen(request, timeout=TIMEOUT) as response:
            resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {done}-")
            if done and response.status == 206 and not resumed:
                part.unlink()
                raise CutOffError("the server sent another part than the one asked for")
            done = done if resumed else 0
            length = length_of(response.headers.get("Content-Length"), url)
            total = done + length if length is not None else None
            with part.open("ab" if resumed else "wb") as file:
                while block := response.read(BLOCK):
                    file.write(block)
                    done += len(block)
                    progress(name, done, total)
                file.flush()
                os.fsync(file.fileno())
    except HTTPError as error:
        explain(error, url, part)
    except (URLError, HTTPException, ConnectionError, TimeoutError) as error:
        raise CutOffError(getattr(error, "reason", None) or error) from error
    except ValueError as error:
        raise DataError(f"{url} cannot be had: the server's answer makes no sense ({error})") from error
    else:
        if total is not None and done < total:
            raise CutOffError(f"{done} of {total} bytes came")


def length_of(told: str | None, url: str) -> int | None:
    """How many bytes the server says will come; None if it does not say."""
    if told is None:
        return None
    if not (told.strip().isascii() and told.strip().isdigit() and len(told) < 20):
        raise DataError(f"{url} cannot be had: the server says that {told[:40]!r} bytes will come, which is no number")
    return int(told)


def explain(error: HTTPError, url: str, part: Path) -> None:
    """A server's refusal: final, worth another try, or a sign that the partial file is as long as the whole."""
    if error.code == RANGE_NOT_SATISFIABLE:
        if error.headers.get("Content-Range", "").endswith(f"/{part.stat().st_size}"):
            return
        part.unlink()
        raise CutOffError("the partial file was longer than the file") from error
    if error.code >= 500 or error.code == 429:
        raise CutOffError(f"the server answered {error.code}") from error
    raise DataError(f"{url} cannot be had: the server answered {error.code} {error.reason}") from error


def matches(path: Path, checksum: str) -> bool:
    """Whether a file has this checksum ("md5:…", "sha256:…"); any file has an empty one."""
    algorithm, _, digits = checksum.partition(":")
    with open_file(path) as file:
        if not checksum:
            return True
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest() == digits
