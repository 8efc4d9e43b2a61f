"""A stretch of memory that two processes see, for tensors to pass through without being pickled."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import weakref
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
        self.memory: mmap.mmap | None = None
        self.bytes = torch.empty(0, dtype=torch.uint8)
        self.lent = 0

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
        self.memory = mmap.mmap(self.handle, 0)
        self.bytes = torch.frombuffer(self.memory, dtype=torch.uint8)

    def write(self, tensors: Mapping[str, Tensor], start: int = 0) -> tuple[Layout, int]:
        """Copy tensors in from `start` on; where each lies, and the first free byte after them."""
        layout: Layout = []
        end = start
        if not tensors:
            return layout, end
        for name, tensor in tensors.items():
            layout.append((name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), end))
            end += -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        self.reach(end)
        for view, tensor in zip(views(self.bytes, layout).values(), tensors.values(), strict=True):
            view.copy_(tensor)
        return layout, end

    def views(self, layout: Layout) -> Tensors:
        """The tensors that lie in the slot, not copied: valid until the slot is written to again."""
        self.reach(end_of(layout))
        return views(self.bytes, layout)

    def lend(self, layout: Layout) -> Tensors:
        """The tensors that lie in the slot, not copied; the slot counts as lent until the last of them is gone."""
        if not end_of(layout):  # nothing, or tensors without a scalar
            return self.views(layout)
        self.reach(end_of(layout))
        assert self.memory is not None
        borrowed = (ctypes.c_ubyte * len(self.memory)).from_buffer(self.memory)
        self.lent += 1
        weakref.finalize(borrowed, self.take_back)
        return views(torch.frombuffer(borrowed, dtype=torch.uint8), layout)

    def take_back(self) -> None:
        """Nobody uses the tensors of one loan any more."""
        self.lent -= 1

    def close(self) -> None:
        """Let go of the memory; tensors still in use keep theirs."""
        os.close(self.handle)


def end_of(layout: Layout) -> int:
    """The first byte after all tensors."""
    sizes = (offset + torch.Size(shape).numel() * getattr(torch, kind).itemsize for _, kind, shape, offset in layout)
    return max(sizes, default=0)


def views(memory: Tensor, layout: Layout) -> Tensors:
    """Tensors that lie in a stretch of bytes."""
    found: Tensors = {}
    for name, type_name, shape, offset in layout:
        dtype: torch.dtype = getattr(torch, type_name)
        size = torch.Size(shape).numel() * dtype.itemsize
        found[name] = memory[offset : offset + size].view(dtype).view(shape)
    return found
