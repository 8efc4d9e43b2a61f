"""A stretch of memory that two processes see, for tensors to pass through without being pickled."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from potluck.core.types import Tensors

Layout = list[tuple[str, str, tuple[int, ...], int]]
"""(name, type, shape, offset) of every tensor in a slot."""

ALIGNMENT = 64
IN_MEMORY = Path("/dev/shm")  # where the system keeps files in memory, if it does


class Slot:
    """Shared memory behind a file handle. The file has no name, so nothing is left behind, however a process ends."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.bytes = torch.empty(0, dtype=torch.uint8)

    @staticmethod
    def create() -> Slot:
        """A new slot; a child process that inherits the handle sees the same memory."""
        with tempfile.TemporaryFile(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as file:
            return Slot(os.dup(file.fileno()))

    def reach(self, size: int) -> None:
        """Make at least `size` bytes visible here; either side may be the one to grow the file."""
        if len(self.bytes) >= size:
            return
        if os.fstat(self.handle).st_size < size:
            os.ftruncate(self.handle, 2 * size)
        self.bytes = torch.frombuffer(mmap.mmap(self.handle, 0), dtype=torch.uint8)

    def write(self, tensors: Mapping[str, Tensor], start: int = 0) -> tuple[Layout, int]:
        """Copy tensors in from `start` on; where each lies, and the first free byte after them."""
        layout: Layout = []
        end = start
        for name, tensor in tensors.items():
            layout.append((name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), end))
            end += -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        self.reach(end)
        for view, tensor in zip(self.views(layout).values(), tensors.values(), strict=True):
            view.copy_(tensor)
        return layout, end

    def views(self, layout: Layout) -> Tensors:
        """The tensors that lie in the slot, not copied."""
        found: Tensors = {}
        for name, type_name, shape, offset in layout:
            dtype: torch.dtype = getattr(torch, type_name)
            size = torch.Size(shape).numel() * dtype.itemsize
            self.reach(offset + size)
            found[name] = self.bytes[offset : offset + size].view(dtype).view(shape)
        return found

    def copies(self, layout: Layout) -> Tensors:
        """The tensors that lie in the slot, copied out of it."""
        return {name: tensor.clone() for name, tensor in self.views(layout).items()}

    def close(self) -> None:
        """Let go of the memory; tensors still in use keep theirs."""
        os.close(self.handle)
