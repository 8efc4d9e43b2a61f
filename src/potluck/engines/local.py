"""Worker processes on this machine, one thread each: several clients at once, the same bits as one at a time.

Workers keep their site (networks, data) between jobs. Tensors pass through shared memory; only
small headers go through pipes. Each worker has two slots, so that its next job is there when it
finishes one. Updates are handed on in the order of the jobs, whoever finishes first.
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
from potluck.core.types import Job, Tensors, Update
from potluck.engines.luggage import pack
from potluck.engines.slot import Slot
from potluck.engines.worker import Answer, Order

SLOTS = 2
AHEAD = 8  # jobs per worker that may be begun before the first of them is handed on: bounds what waits in memory
ATTEMPTS = 2  # a job whose worker dies is tried once more elsewhere


@dataclass
class Assigned:
    """A job that a worker has and has not answered yet."""

    ticket: int
    work: Work
    job: Job
    attempt: int


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
        return [slot for slot in range(SLOTS) if slot not in self.assigned]

    def stop(self) -> None:
        """End the process at once and let go of its memory."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()
        os.close(self.lifeline)
        for slot in self.slots:
            slot.close()


def start_worker(luggage: Slot) -> Worker:
    """Start a worker that shares the luggage and two slots of its own with this process.

    It is a fresh interpreter, not a fork: forking a process in which PyTorch has computed is not
    safe. And it does not import the user's script again, so that needs no `__main__` guard.
    """
    ours, theirs = socket.socketpair()
    life_read, life_write = os.pipe()
    slots = [Slot.create() for _ in range(SLOTS)]
    handles = [theirs.fileno(), life_read, luggage.handle, *(slot.handle for slot in slots)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
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


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Local:
    """Runs clients in worker processes; 0 workers means one per core."""

    def __init__(self, workers: int = 0) -> None:
        self.count = workers or cores()
        self.personal: dict[int, Tensors] = {}
        self.workers: list[Worker] = []
        self.luggage: Slot | None = None
        self.packed = b""
        self.tickets = 0

    def open(self, site: Site) -> None:
        self.luggage = self.luggage or Slot.create()
        self.packed = pack(site, self.luggage)
        while len(self.workers) < self.count:
            self.workers.append(start_worker(self.luggage))
        for worker in self.workers:
            worker.pipe.send(self.packed)

    def map(self, work: Work, jobs: Iterable[Job]) -> Iterator[Update]:
        waiting = iter(jobs)
        first = turn = self.tickets  # tickets number the jobs of all calls, so that a late answer is known as such
        ready: dict[int, tuple[Update, Tensors]] = {}
        more = True
        while more or turn < self.tickets:
            while more and self.tickets - turn < AHEAD * self.count and (worker := self.least_busy()):
                job = next(waiting, None)
                more = job is not None
                if job is not None:
                    self.assign(worker, Assigned(self.tickets, work, job, attempt=1))
                    self.tickets += 1
            if turn in ready:
                update, personal = ready.pop(turn)
                if personal:
                    self.personal[update.client.id] = personal
                turn += 1
                yield update
            elif more or turn < self.tickets:
                ready.update((ticket, answer) for ticket, answer in self.receive() if ticket >= first)

    def close(self) -> None:
        while self.workers:
            self.workers.pop().stop()
        if self.luggage is not None:
            self.luggage.close()
            self.luggage = None

    def least_busy(self) -> Worker | None:
        """A worker with room for a job, one with nothing to do first."""
        worker = max(self.workers, key=lambda worker: len(worker.free_slots))
        return worker if worker.free_slots else None

    def assign(self, worker: Worker, assigned: Assigned) -> None:
        """Put a job into one of the worker's free slots."""
        slot, job = worker.free_slots[0], assigned.job
        payload, end = worker.slots[slot].write(job.payload)
        personal, end = worker.slots[slot].write(self.personal.get(job.client.id, {}), end)
        worker.assigned[slot] = assigned
        try:
            worker.pipe.send(Order(assigned.ticket, slot, assigned.work, job.client, job.round, payload, personal, end))
        except OSError:
            self.replace(worker)

    def receive(self) -> Iterator[tuple[int, tuple[Update, Tensors]]]:
        """Wait until a worker answers; what has been answered, copied out so that the slot is free again."""
        for pipe in wait([worker.pipe for worker in self.workers]):
            worker = next(worker for worker in self.workers if worker.pipe is pipe)
            try:
                answer: Answer = worker.pipe.recv()
            except (EOFError, OSError):
                self.replace(worker)
                continue
            slot = next(slot for slot, assigned in worker.assigned.items() if assigned.ticket == answer.ticket)
            client = worker.assigned.pop(slot).job.client
            if answer.crash:
                raise RuntimeError(f"client {client.id} of level '{client.level.name}' broke down:\n{answer.crash}")
            update = Update(client, worker.slots[slot].copies(answer.payload), answer.seconds, answer.failure)
            yield answer.ticket, (update, worker.slots[slot].copies(answer.personal))

    def replace(self, worker: Worker) -> None:
        """Start another worker for one that died, and give it the same jobs again: a job is a pure function."""
        assert self.luggage is not None
        self.workers.remove(worker)
        worker.stop()
        running, *queued = sorted(worker.assigned.values(), key=lambda assigned: assigned.ticket)
        if running.attempt == ATTEMPTS:
            client = running.job.client
            raise RuntimeError(
                f"a worker process died twice (exit code {worker.process.returncode}) on client {client.id} of level "
                f"'{client.level.name}'; if the machine ran out of memory, try fewer workers"
            )
        fresh = start_worker(self.luggage)
        fresh.pipe.send(self.packed)
        self.workers.append(fresh)
        for assigned in (replace(running, attempt=running.attempt + 1), *queued):
            self.assign(fresh, assigned)
