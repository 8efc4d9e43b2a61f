"""Files that are whole or not there: named tensors with a few words of text, checked when read."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from potluck.core.errors import RunError
from potluck.core.form import Form, form_of
from potluck.core.tensors import copied, laid_out, raw_bytes
from potluck.core.types import Tensors

KEY = "potluck"  # one key alone: several would be written in any order, and equal runs would differ in bytes
LENGTH = 8  # bytes at the start of a file that say how long its header is
LONGEST_HEADER = 1 << 24  # bytes: the names, types and shapes of a hundred thousand tensors are shorter
UNREADABLE = (
    SafetensorError,
    AttributeError,
    KeyError,
    OSError,
    OverflowError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What reading a file that somebody altered may end in."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write, force to disk, then rename: a reader sees the old file or the new one, never half of one."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # half a file of a run that was killed, or a link to somewhere else
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        force_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


def force_directory(directory: Path) -> None:
    """Make a rename survive a power cut."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> str:
    """A digest of every name, type, shape, value and word."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(raw_bytes(tensor))
    return digest.hexdigest()


def save(path: Path, tensors: Tensors, about: Mapping[str, object]) -> None:
    """Write named tensors and what is to be known about them as one safetensors file, atomically."""
    whole = copied(tensors)
    words = json.dumps({"about": about, "sha256": checksum(whole, about)}, sort_keys=True)
    write_atomically(path, safetensors.torch.save(whole, {KEY: words}))


def read(path: Path, form: Form | None = None) -> tuple[Tensors, dict[str, Any]]:
    """Read what `save` wrote; a file that is cut short, altered or not ours is refused by name.

    With a form, tensors of another one are refused, before more is allocated than they should take.
    """
    with refused_by_name(path):
        require_size(path, form)
        with safe_open(path, framework="pt") as file:
            words = words_of(file.metadata())
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            tensors = laid_out(found)  # a file keeps tensors at any address
        about: dict[str, Any] = words["about"]
        intact = words["sha256"] == checksum(tensors, about)
    if not intact:
        raise RunError(f"{path} is damaged: its content does not match its checksum; restore it, or remove it")
    if form is not None and form_of(tensors) != form:
        raise RunError(f"{path} is of another run: {first_difference(form_of(tensors), form)}; restore the right one")
    return tensors, about


def read_words(path: Path) -> dict[str, Any]:
    """What is to be known about a file's tensors, without reading or checking these."""
    with refused_by_name(path):
        require_size(path, None)
        with safe_open(path, framework="pt") as file:
            about: dict[str, Any] = words_of(file.metadata())["about"]
    return about


@contextmanager
def refused_by_name(path: Path) -> Iterator[None]:
    """Turn what reading a damaged file ends in into a sentence with the file's name."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunError(f"there is no file {path}") from error
    except UNREADABLE as error:
        why = " ".join(str(error).split()[:40])
        raise RunError(f"{path} is damaged or not a file of Potluck's ({why}); restore it, or remove it") from error


def words_of(metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """The words that `save` put into a file."""
    words: dict[str, Any] = json.loads((metadata or {})[KEY])
    if not isinstance(words["about"], dict):
        raise ValueError("it says nothing about itself")
    return words


def require_size(path: Path, form: Form | None) -> None:
    """Refuse a file whose header is too long, or whose tensors take more or less than those of a form."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is not a plain file")
    with path.open("rb") as file:
        header = int.from_bytes(file.read(LENGTH), "little")
    if header > min(found.st_size, LONGEST_HEADER):
        raise ValueError("its header is too long")
    if form is not None:
        wanted = sum(spec.shape.numel() * spec.dtype.itemsize for spec in form.values())
        held = found.st_size - LENGTH - header
        if held != wanted:
            raise ValueError(f"it has {held} bytes of tensors, where {wanted} are expected")


def first_difference(found: Form, wanted: Form) -> str:
    """How one form differs from another, by the first name that does.

    >>> import torch
    >>> first_difference({}, form_of({"w": torch.zeros(2)}))
    "'w' is missing, but it should be (2,) of float32"
    """
    name = next(name for name in sorted({*found, *wanted}) if found.get(name) != wanted.get(name))
    should = f"it should be {wanted[name]}" if name in wanted else "there should be no such name"
    return f"'{name}' is {found.get(name, 'missing')}, but {should}"
