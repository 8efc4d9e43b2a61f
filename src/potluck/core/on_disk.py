"""Where an array that is mapped into memory lies in its file, so that another process can open the file itself."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from potluck.core.errors import DataError


@dataclass(frozen=True)
class OnDisk:
    """Where an array, or a view of one, lies in a file."""

    path: Path
    dtype: str  # as NumPy writes it, with the order of bytes
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # bytes from one entry to the next, in each dimension
    offset: int  # bytes before the first entry

    def opened(self) -> Any:
        """The array, which keeps the file open for as long as it is there."""
        with self.explained(), self.path.open("rb") as file:
            return self.view(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def rows(self, index: Any) -> Any:
        """A copy of some rows; the file is open for no longer than that."""
        with (
            self.explained(),
            self.path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages,
        ):
            view = self.view(pages)
            found = view[index]
            del view  # it would keep the map from being closed
            return found

    def view(self, pages: mmap.mmap) -> Any:
        """The array in an open file."""
        return np.ndarray(self.shape, self.dtype, pages, self.offset, self.strides)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Say which file is gone, or shorter than it was."""
        try:
            yield
        except (OSError, ValueError, TypeError) as error:
            raise DataError(f"cannot read {self.path} as it was: {getattr(error, 'strerror', '') or error}") from error


def on_disk(array: Any) -> OnDisk | None:
    """Where an array lies in a file, if it is a view of a memory-mapped one; None if it is in memory."""
    root = owner_of(array)
    if root is None or array.dtype.kind not in "buif" or array.ndim == 0 or not array.size:
        return None
    # NumPy does not keep a slice's own offset: it follows from where its first entry is.
    start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return OnDisk(Path(str(root.filename)), array.dtype.str, array.shape, array.strides, root.offset + start)


def owner_of(array: Any) -> Any:
    """The memory-mapped array that an array is a view of; None if it is in memory, or its file has other values."""
    while isinstance(array, np.ndarray) and not isinstance(array.base, mmap.mmap):
        array = array.base
    if not isinstance(array, np.memmap) or array.filename is None or array.mode == "c":
        return None
    return array
