"""The parent's end of a worker process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from potluck.core.blame import described
from potluck.core.desk import Chore, Piece, whose
from potluck.core.errors import EngineError
from potluck.core.types import Job
from potluck.engines.slot import Slot, wanting

SLOTS = 4
QUEUED = 2  # orders a worker has at a time: its next job is there when it finishes one
KEEP_MEMORY = ":".join(  # what a worker frees it needs again in the next step: let it keep the pages, large ones
    (
        "glibc.malloc.hugetlb=1",
        f"glibc.malloc.mmap_threshold={1 << 25}",
        f"glibc.malloc.trim_threshold={1 << 30}",
        f"glibc.malloc.top_pad={1 << 24}",
    )
)
PROGRAM = """\
import os, sys, threading

lifeline = int(sys.argv.pop(1))

def leave_with_parent():
    os.read(lifeline, 1)  # nothing is ever written: it returns when the parent's end closes
    os._exit(1)  # even in the middle of a job

threading.Thread(target=leave_with_parent, daemon=True).start()  # before PyTorch is imported, which takes seconds

from potluck.engines.worker import main

main()
"""


Load = Sequence[Job] | tuple[Chore, Piece]
"""What a worker is given at once: jobs that belong together, or a piece of the server's own work."""


@dataclass
class Assigned:
    """What a worker was given and has not answered yet."""

    ticket: int
    load: Load
    attempt: int = 1

    @property
    def parts(self) -> Sequence[Job | Piece]:
        """The jobs, or the piece, that answers are for."""
        return [part for part in self.load if isinstance(part, Job | Piece)]

    def described(self) -> str:
        """Whose work this is."""
        first, *others = self.parts
        if isinstance(first, Piece):
            return whose(first)
        return described(first) + (f" and {len(others)} more" if others else "")


@dataclass
class Worker:
    """The parent's end of a worker process."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    lifeline: int
    slots: list[Slot]
    assigned: dict[int, Assigned] = field(default_factory=dict)  # by slot

    @property
    def free_slots(self) -> list[int]:
        return [slot for slot in range(SLOTS) if slot not in self.assigned and not self.slots[slot].lent]

    @property
    def room(self) -> int:
        """How many more orders it can be given."""
        return min(QUEUED - len(self.assigned), len(self.free_slots))

    def stop(self) -> None:
        """End the process at once and let go of its memory."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        os.close(self.lifeline)
        for slot in self.slots:
            slot.close()


def start_worker(luggage: Slot, board: Slot) -> Worker:
    """Start a worker that shares the luggage, the board and slots of its own with this process.

    It is a fresh interpreter, not a fork: forking a process in which PyTorch has computed is not
    safe. And it does not import the user's script again, so that needs no `__main__` guard.
    """
    with ExitStack() as theirs, ExitStack() as ours:  # what each side needs; ours is closed only if nothing comes of it
        try:
            our_end, their_end = socket.socketpair()
            ours.callback(our_end.close)
            theirs.callback(their_end.close)
            watched, lifeline = os.pipe()
            ours.callback(os.close, lifeline)
            theirs.callback(os.close, watched)
            slots: list[Slot] = []
            while len(slots) < SLOTS:
                slots.append(Slot.create())
                ours.callback(slots[-1].close)
            handles = [watched, their_end.fileno(), luggage.handle, board.handle, *(slot.handle for slot in slots)]
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *map(str, handles)],
                pass_fds=handles,
                env=environment(),
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C goes to the parent alone
            )
        except OSError as error:
            raise EngineError(f"no worker process can be started: {wanting(error)}") from error
        ours.pop_all()
        return Worker(process, Connection(our_end.detach()), lifeline, slots)


def environment() -> dict[str, str]:
    """The environment of a worker: this process's, with one thread, and with all that can be imported here."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", KEEP_MEMORY),
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
    }
