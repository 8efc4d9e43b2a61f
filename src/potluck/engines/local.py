"""Worker processes on this machine, one thread each: several clients at once, the same bits as one at a time.

Workers keep their site (networks, data) between jobs. Tensors pass through shared memory; only small headers go through
pipes. A worker has slots for the job it runs, for the next, and for answers that are still being read where they lie.
Answers are handed on in the order of the jobs, whoever finishes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait

from potluck.core.client import Site
from potluck.core.clock import Clock
from potluck.core.desk import Chore, Desk, Piece
from potluck.core.rows import rows_of
from potluck.core.store import Memory, Store
from potluck.core.threads import cores, one_thread
from potluck.core.types import Job, Tensors, Update
from potluck.engines.board import Board
from potluck.engines.luggage import pack
from potluck.engines.process import QUEUED, Assigned, Load, Worker, start_worker
from potluck.engines.slot import Slot
from potluck.engines.worker import Answer, Order, Place, Sent

AHEAD = 8  # bundles per worker that may be begun before the first of them is handed on: bounds what waits in memory
ATTEMPTS = 2  # jobs whose worker dies are tried once more elsewhere


@dataclass(frozen=True)
class Result:
    """What came of a job or a piece."""

    of: Job | Piece
    payload: Tensors
    personal: Tensors
    seconds: float
    failure: str


class Local:
    """Runs clients in worker processes; 0 workers means one per core."""

    def __init__(self, workers: int = 0) -> None:
        self.places = workers or cores()
        self.store: Store = Memory()
        self.clock = Clock()
        self.workers: list[Worker] = []
        self.shared: tuple[Slot, Board] | None = None  # the luggage, and what many jobs are sent alike
        self.packed = b""
        self.tickets = self.first = 0

    def open(self, site: Site, desk: Desk, store: Store, clock: Clock) -> None:
        self.store, self.clock = store, clock
        luggage, board = self.shared = self.shared or (Slot.create(), Board())
        self.packed = pack(site, desk, luggage)
        while len(self.workers) < self.places:
            self.workers.append(start_worker(luggage, board.slot))
        for worker in self.workers:
            worker.pipe.send(self.packed)

    def map(self, bundles: Iterable[Sequence[Job]]) -> Iterator[Update]:
        for result in self.worked(bundles):
            job, stays = result.of, result.personal
            assert isinstance(job, Job)
            if stays:
                self.store.put(job.client.id, stays)
            yield Update(job.client, result.payload, result.seconds, result.failure, job.round, job.run)
            del result, stays  # what has been handed on is not held here: its slot may be wanted

    def share(self, chore: Chore, pieces: Iterable[Piece]) -> Iterator[Tensors]:
        for result in self.worked((chore, piece) for piece in pieces):
            yield result.payload
            del result

    def worked(self, loads: Iterable[Load]) -> Iterator[Result]:
        """What came of each job or piece, in their order."""
        waiting = iter(loads)
        turn = self.first = self.tickets  # tickets number the loads of all calls: a late answer is known as such
        ready: dict[int, list[Result]] = {}
        more = True
        assert self.shared is not None
        self.shared[1].clear()
        with one_thread():  # the cores are the workers': threads that wait for one another would wait for them
            while more or turn < self.tickets:
                while more and self.tickets - turn < AHEAD * self.places and (worker := self.least_busy()):
                    load = next(waiting, None)
                    more = load is not None
                    if load is not None:
                        self.assign(worker, Assigned(self.tickets, load))
                        self.tickets += 1
                if turn in ready:
                    results = ready.pop(turn)
                    turn += 1
                    while results:
                        yield results.pop(0)
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
        """Put a load into one of the worker's free slots."""
        with self.clock.spent("transport"):
            number = worker.free_slots[0]
            order = self.order(assigned, number, worker.slots[number])
            worker.assigned[number] = assigned
            try:
                worker.pipe.send(order)
            except OSError:
                self.replace(worker)

    def order(self, assigned: Assigned, number: int, slot: Slot) -> Order:
        """The order for a load, its tensors in the slot or on the board."""
        jobs, piece, end = [], None, 0
        places: dict[int, Place] = {}  # of payloads, which many jobs may be sent alike
        for part in assigned.parts:
            level = part.client.level if isinstance(part, Job) else part.level
            if id(part.payload) not in places:
                places[id(part.payload)], end = self.write(level.name, part.payload, slot, end)
            payload = places[id(part.payload)]
            if isinstance(part, Job):
                personal, end = slot.write(self.store.get(part.client.id), end)
                jobs.append(Sent(part.client, part.round, part.work, part.run, payload, Place(personal)))
            else:
                piece = assigned.load[0], replace(part, payload={}), payload
        return Order(assigned.ticket, number, jobs, piece, end)  # type: ignore[arg-type]

    def write(self, level: str, payload: Tensors, slot: Slot, end: int) -> tuple[Place, int]:
        """Put a payload on the board if it was just sent to another, else into the slot."""
        assert self.shared is not None
        layout = self.shared[1].find(level, payload)
        if layout is not None:
            return Place(layout, on_board=True), end
        layout, end = slot.write(payload, end)
        return Place(layout), end

    def receive(self) -> Iterator[tuple[int, list[Result]]]:
        """Wait until a worker answers; what has been answered."""
        with self.clock.spent("waiting"):
            pipes = wait([worker.pipe for worker in self.workers])
        with self.clock.spent("transport"):
            answers = [found for pipe in pipes if (found := self.read(pipe)) is not None]  # type: ignore[arg-type]
        yield from answers

    def read(self, pipe: Connection) -> tuple[int, list[Result]] | None:
        """One worker's answer, where it lies; copied out if the worker would be left without a slot to go on with."""
        worker = next(worker for worker in self.workers if worker.pipe is pipe)
        try:
            answer: Answer = worker.pipe.recv()
        except (EOFError, OSError):
            self.replace(worker)
            return None
        number = next(slot for slot, assigned in worker.assigned.items() if assigned.ticket == answer.ticket)
        slot, assigned = worker.slots[number], worker.assigned.pop(number)
        if answer.ticket < self.first:  # of a call that nobody listens to any more
            return None
        if answer.mistake is not None:
            raise answer.mistake
        if answer.crash:
            raise RuntimeError(f"{assigned.described()} broke down:\n{answer.crash}")
        take = slot.lend if len(worker.free_slots) > QUEUED - len(worker.assigned) else slot.copies
        rows = iter(rows_of(answer.rows.stack(take(answer.rows.tables))))
        results = [
            Result(
                part,
                next(rows) if found.payload is None else take(found.payload),
                slot.copies(found.personal),
                found.seconds,
                found.failure,
            )
            for part, found in zip(assigned.parts, answer.results, strict=True)
        ]
        return answer.ticket, results

    def replace(self, worker: Worker) -> None:
        """Start another worker for one that died, and give it the same loads again: work is a pure function."""
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
