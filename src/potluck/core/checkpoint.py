"""Files that are whole or not there: named tensors with a few words of text, checked when read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from potluck.core.errors import RunError
from potluck.core.tensors import copied, laid_out, raw_bytes
from potluck.core.types import Tensors

KEY = "potluck"  # one key alone: several would be written in any order, and equal runs would differ in bytes


def write_atomically(path: Path, content: bytes) -> None:
    """Write, force to disk, then rename: a reader sees the old file or the new one, never half of one."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        force_directory(path.parent)
    except OSError as error:
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


def read(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Read what `save` wrote; a file that is cut short, altered or not ours is refused by name."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            tensors = laid_out(found)  # a file keeps tensors at any address
        words = json.loads(metadata[KEY])
        about: dict[str, Any] = words["about"]
        intact = words["sha256"] == checksum(tensors, about)
    except FileNotFoundError as error:
        raise RunError(f"there is no file {path}") from error
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise RunError(f"{path} is damaged or not a file of Potluck's ({error}); restore it, or remove it") from error
    if not intact:
        raise RunError(f"{path} is damaged: its content does not match its checksum; restore it, or remove it")
    return tensors, about
