"""Moving a site and the desk into a worker: code by value, large tensors in shared memory, files by their names."""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle
import numpy as np
import torch

from potluck.core.client import Site
from potluck.core.desk import Desk
from potluck.core.on_disk import OnDisk, on_disk
from potluck.engines.slot import Layout, Slot

LARGE = 1 << 16  # bytes from which a tensor is worth sharing rather than copying


class Packer(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what a user wrote anywhere (a script, a notebook, a lambda), large tensors and mapped files aside."""

    def __init__(self, file: io.BytesIO, slot: Slot) -> None:
        super().__init__(file)
        self.slot = slot
        self.end = 0

    def persistent_id(self, obj: object) -> Layout | OnDisk | None:
        if isinstance(obj, np.ndarray):
            return on_disk(obj)
        if type(obj) is not torch.Tensor or obj.requires_grad or obj.device.type != "cpu":
            return None
        if obj.numel() * obj.element_size() < LARGE or not obj.is_contiguous():  # shared memory forgets strides
            return None
        layout, self.end = self.slot.write({"": obj}, self.end)
        return layout


class Unpacker(pickle.Unpickler):
    """Reads what `Packer` wrote in the parent process, never anything that came over a wire."""

    def __init__(self, file: io.BytesIO, slot: Slot) -> None:
        super().__init__(file)
        self.slot = slot

    def persistent_load(self, pid: Layout | OnDisk) -> Any:
        return pid.opened() if isinstance(pid, OnDisk) else self.slot.views(pid)[""]


def pack(site: Site, desk: Desk, slot: Slot) -> bytes:
    """The site and the desk as bytes for the pipe, their large tensors in the slot."""
    file = io.BytesIO()
    Packer(file, slot).dump((site, desk))
    return file.getvalue()


def unpack(content: bytes, slot: Slot) -> tuple[Site, Desk]:
    """The site and the desk again, their large tensors shared with every other worker."""
    site, desk = Unpacker(io.BytesIO(content), slot).load()
    assert isinstance(site, Site)
    assert isinstance(desk, Desk)
    return site, desk
