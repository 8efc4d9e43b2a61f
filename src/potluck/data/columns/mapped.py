"""Arrays in files that are mapped into memory: batches are read from the file, and nothing else of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from potluck.core.on_disk import OnDisk, on_disk
from potluck.data.columns.tensors import as_tensor, require_finite, usable


@dataclass(frozen=True)
class Mapped:
    """A column in a file, which is opened anew for every batch.

    A map that stayed open would keep every page that was ever read, in every worker.
    """

    place: OnDisk

    even: ClassVar[bool] = True

    def __len__(self) -> int:
        return self.place.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.place.shape

    def take(self, index: Tensor) -> Tensor:
        what = str(self.place.path)
        found = usable(as_tensor(self.place.rows(index.numpy()), what))
        require_finite(found, what, index.tolist())
        return found

    def example(self) -> Tensor:
        return usable(as_tensor(np.zeros((1, *self.shape[1:]), self.place.dtype), str(self.place.path)))


def mapped_file(array: Any) -> Mapped | None:
    """An array as a column in its file, if it is a view of a memory-mapped one; None if it is in memory."""
    found = on_disk(array)
    return None if found is None else Mapped(found)
