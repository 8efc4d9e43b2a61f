"""A stretch of memory that two processes see, for tensors to pass through without being pickled."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
import weakref
from collections.abc import Mapping

import torch
from torch import Tensor

from potluck.core.errors import EngineError
from potluck.core.tensors import ALIGNMENT, copied
from potluck.core.types import Tensors

Layout = list[tuple[str, str, tuple[int, ...], int]]
"""(name, type, shape, offset) of every tensor in a slot."""

TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)


class Slot:
    """Shared memory behind a file handle. The file has no name, so nothing is left behind, however a process ends."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.memory: mmap.mmap | None = None
        self.bytes = torch.empty(0, dtype=torch.uint8)
        self.reserved = 0  # bytes from the start that this side has made sure of
        self.lent = 0

    @staticmethod
    def create() -> Slot:
        """A new slot; a child process that inherits the handle sees the same memory."""
        try:
            return Slot(anonymous_file())
        except OSError as error:
            raise EngineError(f"no memory can be shared with worker processes: {wanting(error)}") from error

    def reach(self, size: int) -> None:
        """Make at least `size` bytes visible here; either side may be the one to grow the file."""
        if len(self.bytes) >= size:
            return
        try:
            if os.fstat(self.handle).st_size < size:
                os.ftruncate(self.handle, 2 * size)
            self.memory = mmap.mmap(self.handle, 0)
        except OSError as error:
            raise no_room(size, error) from error
        self.bytes = torch.frombuffer(self.memory, dtype=torch.uint8)

    def reserve(self, size: int) -> None:
        """Have memory behind the first `size` bytes: writing where there is none ends a process without a word."""
        if self.reserved >= size:
            return
        self.reach(size)
        try:
            if hasattr(os, "posix_fallocate"):  # macOS has none
                os.posix_fallocate(self.handle, self.reserved, size - self.reserved)
        except OSError as error:
            raise no_room(size, error) from error
        self.reserved = size

    def write(self, tensors: Mapping[str, Tensor], start: int = 0) -> tuple[Layout, int]:
        """Copy tensors in from `start` on; where each lies, and the first free byte after them."""
        if not tensors:
            return [], start
        layout, end = planned({name: (tuple(t.shape), t.dtype) for name, t in tensors.items()}, start)
        self.reserve(end)
        for view, tensor in zip(views(self.bytes, layout).values(), tensors.values(), strict=True):
            view.copy_(tensor)
        return layout, end

    def views(self, layout: Layout) -> Tensors:
        """The tensors that lie in the slot, not copied: valid until the slot is written to again."""
        self.reach(end_of(layout))
        return views(self.bytes, layout)

    def copies(self, layout: Layout) -> Tensors:
        """The tensors that lie in the slot, in memory of their own."""
        return copied(self.views(layout)) if layout else {}

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


def anonymous_file() -> int:
    """The handle of a file without a name: in memory, or on disk where the system has no such files or forbids them.

    Not a file in /dev/shm: containers often have 64 MB there, or cannot write to it.
    """
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("potluck")
        except OSError as error:
            if error.errno in TOO_MANY_FILES:
                raise
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def no_room(size: int, error: OSError) -> EngineError:
    """The complaint that a slot cannot grow."""
    return EngineError(f"no {size:,} bytes of memory can be shared with worker processes: {wanting(error)}")


def wanting(error: OSError) -> str:
    """What the system says, and what to do about it."""
    first = "raise that limit (ulimit -n)" if error.errno in TOO_MANY_FILES else "free some"
    return f'{error.strerror or error}; {first}, use fewer workers (engine.workers), or none (engine.name = "serial")'


def planned(shapes: Mapping[str, tuple[tuple[int, ...], torch.dtype]], start: int) -> tuple[Layout, int]:
    """Where tensors would lie from `start` on, and the first free byte after them."""
    layout, end = Layout(), start
    for name, (shape, dtype) in shapes.items():
        layout.append((name, str(dtype).removeprefix("torch."), shape, end))
        end += -(-torch.Size(shape).numel() * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    return layout, end


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
