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
from potluck.core.errors import ConfigError
from potluck.core.on_disk import OnDisk, on_disk
from potluck.engines.slot import Layout, Slot

LARGE = 1 << 16  # bytes from which a tensor is worth sharing rather than copying
UNSENDABLE = (TypeError, AttributeError, ValueError, RuntimeError, pickle.PicklingError)  # what pickling a thing raises


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


class Prober(cloudpickle.Pickler):  # type: ignore[misc]
    """Tells whether something can be pickled; tensors always can, and are not copied for it."""

    def persistent_id(self, obj: object) -> bool | None:
        return True if isinstance(obj, torch.Tensor | np.ndarray) else None


def pack(site: Site, desk: Desk, slot: Slot) -> bytes:
    """The site and the desk as bytes for the pipe, their large tensors in the slot."""
    file = io.BytesIO()
    try:
        Packer(file, slot).dump((site, desk))
    except UNSENDABLE as error:
        task = site.task
        parts = {
            "the data": (site.holder, desk.test),
            "the network": task.model,
            "the loss": task.goal.criterion,
            "the task": task.goal,
            "the metrics": task.measures,
            "the method": site.method,
        }
        if culprit := next((name for name, part in parts.items() if not can_be_sent(part)), ""):
            raise ConfigError(
                f"{culprit} cannot be sent to workers: {error}; let it open files and make locks or generators when "
                "it first needs them, or let the engine be 'serial'"
            ) from error
        raise
    return file.getvalue()


def can_be_sent(part: object) -> bool:
    """Whether a part of a run can be pickled."""
    try:
        Prober(io.BytesIO()).dump(part)
    except UNSENDABLE:
        return False
    return True


def unpack(content: bytes, slot: Slot) -> tuple[Site, Desk]:
    """The site and the desk again, their large tensors shared with every other worker."""
    site, desk = Unpacker(io.BytesIO(content), slot).load()
    assert isinstance(site, Site)
    assert isinstance(desk, Desk)
    return site, desk
