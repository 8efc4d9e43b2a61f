"""Pickles of byte arrays and plain containers, and of nothing else: a pickle may otherwise run any code.

Not even numpy is handed to the pickle: what it calls to rebuild an array are the stand-ins below,
which only note what they are given; the array is made, and checked, afterwards.
"""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import DataError

Bytes = NDArray[np.uint8]


class StoredType:
    """Stands in for `numpy.dtype`."""

    def __init__(self, code: str | bytes, *details: object) -> None:
        self.code = code.decode("ascii") if isinstance(code, bytes) else code

    def __setstate__(self, state: object) -> None:
        """Byte order and the like mean nothing for bytes."""


class StoredArray:
    """Stands in for `numpy.ndarray`: what the pickle says of it."""

    def __init__(self, *nothing: object) -> None:
        self.state: tuple[object, ...] = ()

    def __setstate__(self, state: tuple[object, ...]) -> None:
        self.state = state

    def array(self) -> Bytes:
        """The array, if it is one of bytes and complete."""
        _, shape, kind, by_columns, content = self.state
        if not isinstance(kind, StoredType) or kind.code != "u1" or not isinstance(content, bytes):
            raise ValueError("its array is not one of unsigned bytes")
        if not isinstance(shape, tuple) or len(content) != math.prod(shape):
            raise ValueError(f"its array has {len(content)} bytes, not the {shape} announced")
        return np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_columns else "C")


class Latin1:
    """Stands in for `_codecs.encode`, with which Python 3 writes bytes into old pickles."""

    __slots__ = ()  # unlike a function, nothing for a pickle to set attributes on

    def __call__(self, text: str, encoding: str) -> bytes:
        return text.encode("latin-1")


ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): StoredArray,
    ("numpy._core.multiarray", "_reconstruct"): StoredArray,
    ("numpy", "ndarray"): StoredArray,
    ("numpy", "dtype"): StoredType,
    ("_codecs", "encode"): Latin1(),
}


class PlainUnpickler(pickle.Unpickler):
    """An unpickler that knows the names in `ADMITTED` and no other."""

    def find_class(self, module: str, name: str) -> object:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def read_pickle(content: bytes, path: Path) -> dict[str, object]:
    """A pickled dictionary whose values are byte arrays and plain containers; Python 2 strings become bytes."""
    try:
        found = PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__}, not a dictionary")
        return {
            key.decode("ascii") if isinstance(key, bytes) else str(key): (
                value.array() if isinstance(value, StoredArray) else value
            )
            for key, value in found.items()
        }
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(f"{path} is no pickle of byte arrays and plain containers, or damaged: {error}") from error
