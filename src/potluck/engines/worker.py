"""A worker process: keeps one site and the server's desk, and does what it is ordered until its parent is gone."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import torch

from potluck.core.client import Site
from potluck.core.desk import Chore, Desk, Piece
from potluck.core.errors import PotluckError
from potluck.core.types import Client, Job
from potluck.core.works import perform
from potluck.engines.luggage import unpack
from potluck.engines.rows import RowLayout, Rows
from potluck.engines.slot import Layout, Slot


@dataclass(frozen=True)
class Place:
    """Where tensors lie: in the order's slot, or on the board that all workers read."""

    layout: Layout
    on_board: bool = False


@dataclass(frozen=True)
class Sent:
    """A job whose tensors lie in shared memory."""

    client: Client
    round: int
    work: str
    run: str
    payload: Place
    personal: Place


@dataclass(frozen=True)
class Order:
    """Parent to worker: run these jobs, together, or do a piece of the server's own work."""

    ticket: int
    slot: int
    jobs: list[Sent]
    piece: tuple[Chore, Piece, Place] | None  # the piece without its payload, which lies in its place
    end: int  # the first free byte of the slot, where the answer may begin


@dataclass(frozen=True)
class Returned:
    """What came of one job or piece."""

    payload: Layout | None  # None: it is the next row of the answer's rows
    personal: Layout
    seconds: float = 0.0
    failure: str = ""


@dataclass(frozen=True)
class Answer:
    """Worker to parent: what came of an order; its tensors lie behind the order's in the same slot."""

    ticket: int
    results: list[Returned]
    rows: RowLayout = field(default_factory=RowLayout)  # of clients that were trained at once, a client per row
    crash: str = ""  # the traceback, if the work broke down
    mistake: PotluckError | None = None  # a mistake of the user's that shows only now


@dataclass(frozen=True)
class Bench:
    """What a worker works with."""

    site: Site
    desk: Desk
    slot: Slot
    board: Slot

    def follow(self, order: Order) -> Answer:
        """Do what was ordered."""
        try:
            if order.piece is None:
                return self.run_jobs(order)
            return Answer(order.ticket, [self.do_piece(order)])
        except PotluckError as error:
            return Answer(order.ticket, [], mistake=error)
        except Exception:
            return Answer(order.ticket, [], crash=traceback.format_exc())

    def run_jobs(self, order: Order) -> Answer:
        """Answer jobs; each answer is written before the next is made, which may use the same network."""
        places = {id(sent.payload): sent.payload for sent in order.jobs}  # many jobs may be sent alike
        payloads = {known: self.at(place) for known, place in places.items()}
        jobs = [
            Job(sent.client, sent.round, dict(payloads[id(sent.payload)]), sent.work, sent.run) for sent in order.jobs
        ]
        kept = [self.at(sent.personal) for sent in order.jobs]
        rows, end, results = Rows(self.slot, len(jobs)), order.end, []
        for update, stays in perform(self.site, jobs, kept):
            payload: Layout | None = None
            after = rows.add(update.payload, end) if len(jobs) > 1 else None
            if after is None:
                payload, after = self.slot.write(update.payload, end)
            own, end = self.slot.write(stays, after)
            results.append(Returned(payload, own, update.seconds, update.failure))
        return Answer(order.ticket, results, rows.written())

    def do_piece(self, order: Order) -> Returned:
        """Do a piece of the server's own work."""
        assert order.piece is not None
        chore, piece, place = order.piece
        piece.payload.update(self.at(place))
        found, _ = self.slot.write(chore(self.desk, piece), order.end)
        return Returned(found, [])

    def at(self, place: Place) -> dict[str, torch.Tensor]:
        """The tensors at a place."""
        return (self.board if place.on_board else self.slot).views(place.layout) if place.layout else {}


def unpacked(content: bytes, luggage: Slot) -> tuple[tuple[Site, Desk] | None, PotluckError | None]:
    """The site and the desk, or what is wrong with the files that they name."""
    try:
        return unpack(content, luggage), None
    except PotluckError as error:
        return None, error


def main() -> None:
    """Serve orders; the arguments are the handles that `start_worker` lists."""
    handles = [int(argument) for argument in sys.argv[1:]]
    torch.set_num_threads(1)
    pipe = Connection(handles[0])
    luggage, board, *slots = (Slot(handle) for handle in handles[1:])
    place: tuple[Site, Desk] | None = None
    mistake: PotluckError | None = None
    while True:
        try:
            message = pipe.recv()
        except (EOFError, ConnectionError):
            return
        if isinstance(message, bytes):
            place, mistake = unpacked(message, luggage)
        elif mistake is not None:
            pipe.send(Answer(message.ticket, [], mistake=mistake))
        else:
            assert place is not None
            pipe.send(Bench(*place, slots[message.slot], board).follow(message))
