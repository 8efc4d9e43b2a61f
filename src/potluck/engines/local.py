"""Worker processes on this machine, one thread each: several clients at once, the same bits as one at a time.

Workers keep their site (networks, data) between jobs. Tensors pass through shared memory; only small headers go through
pipes. A worker has slots for the job it runs, for the next, and for answers that are still being read where they lie.
Updates are handed on in the order of the jobs, whoever finishes first.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

from potluck.core.client import Site, Work
from potluck.core.clock import Clock
from potluck.core.tensors import copied
from potluck.core.threads import cores, one_thread
from potluck.core.types import Job, Tensors, Update
from potluck.engines.board import Board
from potluck.engines.bundles import in_bundles
from potluck.engines.luggage import pack
from potluck.engines.slot import Slot
from potluck.engines.worker import Answer, Order, Sent

SLOTS = 4
QUEUED = 2  # orders a worker has at a time: its next job is there when it finishes one
AHEAD = 8  # bundles per worker that may be begun before the first of them is handed on: bounds what waits in memory
ATTEMPTS = 2  # jobs whose worker dies are tried once more elsewhere
KEEP_MEMORY = ":".join(  # what a worker frees it needs again in the next step: let it keep the pages, large ones
    (
        "glibc.malloc.hugetlb=1",
        f"glibc.malloc.mmap_threshold={1 << 25}",
        f"glibc.malloc.trim_threshold={1 << 30}",
        f"glibc.malloc.top_pad={1 << 24}",
    )
)


@dataclass
class Assigned:
    """Jobs that a worker has and has not answered yet."""

    ticket: int
    work: Work
    jobs: list[Job]
    attempt: int

    def described(self) -> str:
        """Whose jobs these are."""
        first, *others = (job.client for job in self.jobs)
        return f"client {first.id} of level '{first.level.name}'" + (f" and {len(others)} more" if others else "")


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
    ours, theirs = socket.socketpair()
    life_read, life_write = os.pipe()
    slots = [Slot.create() for _ in range(SLOTS)]
    handles = [theirs.fileno(), life_read, luggage.handle, board.handle, *(slot.handle for slot in slots)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", KEEP_MEMORY),
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
    }
    command = [sys.executable, "-c", "from potluck.engines.worker import main; main()", *map(str, handles)]
    process = subprocess.Popen(
        command,
        pass_fds=handles,
        env=environment,
        stdin=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C goes to the parent alone
    )
    theirs.close()
    os.close(life_read)
    return Worker(process, Connection(ours.detach()), life_write, slots)


class Local:
    """Runs clients in worker processes; 0 workers means one per core."""

    def __init__(self, workers: int = 0) -> None:
        self.places = workers or cores()
        self.personal: dict[int, Tensors] = {}
        self.clock = Clock()
        self.workers: list[Worker] = []
        self.shared: tuple[Slot, Board] | None = None  # the luggage, and what many jobs are sent alike
        self.packed = b""
        self.tickets = self.first = 0

    def open(self, site: Site) -> None:
        luggage, board = self.shared = self.shared or (Slot.create(), Board())
        self.packed = pack(site, luggage)
        while len(self.workers) < self.places:
            self.workers.append(start_worker(luggage, board.slot))
        for worker in self.workers:
            worker.pipe.send(self.packed)

    def map(self, work: Work, jobs: Iterable[Job]) -> Iterator[Update]:
        with one_thread():  # the cores are the workers': threads that wait for one another would wait for them
            yield from self.updates(work, jobs)

    def updates(self, work: Work, jobs: Iterable[Job]) -> Iterator[Update]:
        """`map` itself."""
        waiting = in_bundles(jobs)
        turn = self.first = self.tickets  # tickets number the bundles of all calls: a late answer is known as such
        ready: dict[int, list[tuple[Update, Tensors]]] = {}
        more = True
        assert self.shared is not None
        self.shared[1].clear()
        while more or turn < self.tickets:
            while more and self.tickets - turn < AHEAD * self.places and (worker := self.least_busy()):
                bundle = next(waiting, None)
                more = bundle is not None
                if bundle is not None:
                    self.assign(worker, Assigned(self.tickets, work, bundle, attempt=1))
                    self.tickets += 1
            if turn in ready:
                answers = ready.pop(turn)
                turn += 1
                while answers:  # what has been handed on is not held here: its slot may be wanted
                    update, personal = answers.pop(0)
                    if personal:
                        self.personal[update.client.id] = personal
                    yield update
                    del update
            elif more or turn < self.tickets:
                ready.update(self.receive())

    def close(self) -> None:
        while self.workers:
            self.workers.pop().stop()
        if self.shared is not None:
            luggage, board = self.shared
            luggage.close()
            board.slot.close()
            self.shared = None

    def least_busy(self) -> Worker | None:
        """A worker with room for an order, one with nothing to do first."""
        worker = max(self.workers, key=lambda worker: worker.room)
        return worker if worker.room > 0 else None

    def assign(self, worker: Worker, assigned: Assigned) -> None:
        """Put jobs into one of the worker's free slots."""
        with self.clock.spent("transport"):
            number, end, sent = worker.free_slots[0], 0, []
            slot = worker.slots[number]
            assert self.shared is not None
            for job in assigned.jobs:
                payload = self.shared[1].find(job)
                on_board = payload is not None
                if payload is None:
                    payload, end = slot.write(job.payload, end)
                personal, end = slot.write(self.personal.get(job.client.id, {}), end)
                sent.append(Sent(job.client, job.round, payload, on_board, personal))
            worker.assigned[number] = assigned
            try:
                worker.pipe.send(Order(assigned.ticket, number, assigned.work, sent, end))
            except OSError:
                self.replace(worker)

    def receive(self) -> Iterator[tuple[int, list[tuple[Update, Tensors]]]]:
        """Wait until a worker answers; what has been answered."""
        with self.clock.spent("waiting"):
            pipes = wait([worker.pipe for worker in self.workers])
        with self.clock.spent("transport"):
            answers = [found for pipe in pipes if (found := self.read(pipe)) is not None]  # type: ignore[arg-type]
        yield from answers

    def read(self, pipe: Connection) -> tuple[int, list[tuple[Update, Tensors]]] | None:
        """One worker's answer, where it lies; copied out if the worker would be left without a slot to go on with."""
        worker = next(worker for worker in self.workers if worker.pipe is pipe)
        try:
            answer: Answer = worker.pipe.recv()
        except (EOFError, OSError):
            self.replace(worker)
            return None
        number = next(slot for slot, assigned in worker.assigned.items() if assigned.ticket == answer.ticket)
        slot, jobs = worker.slots[number], worker.assigned.pop(number)
        if answer.ticket < self.first:  # of a call that nobody listens to any more
            return None
        if answer.mistake is not None:
            raise answer.mistake
        if answer.crash:
            raise RuntimeError(f"{jobs.described()} broke down:\n{answer.crash}")
        spare = len(worker.free_slots) > QUEUED - len(worker.assigned)
        results = [
            (
                Update(
                    job.client,
                    slot.lend(found.payload) if spare else copied(slot.views(found.payload)),
                    found.seconds,
                    found.failure,
                ),
                copied(slot.views(found.personal)),
            )
            for job, found in zip(jobs.jobs, answer.results, strict=True)
        ]
        return answer.ticket, results

    def replace(self, worker: Worker) -> None:
        """Start another worker for one that died, and give it the same jobs again: a job is a pure function."""
        assert self.shared is not None
        self.workers.remove(worker)
        worker.stop()
        left = sorted(worker.assigned.values(), key=lambda assigned: assigned.ticket)
        left[:1] = [replace(running, attempt=running.attempt + 1) for running in left[:1]]  # the others had not begun
        if left and left[0].attempt > ATTEMPTS:
            raise RuntimeError(
                f"a worker process died twice (exit code {worker.process.returncode}) on {left[0].described()}; "
                "if the machine ran out of memory, try fewer workers"
            )
        fresh = start_worker(self.shared[0], self.shared[1].slot)
        fresh.pipe.send(self.packed)
        self.workers.append(fresh)
        for assigned in left:
            self.assign(fresh, assigned)
