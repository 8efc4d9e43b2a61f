"""A worker process: keeps one site, and runs jobs on it until its parent is gone."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from potluck.core.client import Site, Work, perform_bundle
from potluck.core.errors import PotluckError
from potluck.core.types import Client, Job
from potluck.engines.luggage import unpack
from potluck.engines.slot import Layout, Slot


@dataclass(frozen=True)
class Sent:
    """A job whose tensors lie in a slot, or its payload on the board."""

    client: Client
    round: int
    payload: Layout
    on_board: bool
    personal: Layout


@dataclass(frozen=True)
class Order:
    """Parent to worker: run this work on these jobs, together."""

    ticket: int
    slot: int
    work: Work
    jobs: list[Sent]
    end: int  # the first free byte of the slot, where the answer may begin


@dataclass(frozen=True)
class Returned:
    """What came of one job."""

    payload: Layout
    personal: Layout
    seconds: float
    failure: str


@dataclass(frozen=True)
class Answer:
    """Worker to parent: what came of an order; its tensors lie behind the order's in the same slot."""

    ticket: int
    results: list[Returned]
    crash: str = ""  # the traceback, if the work broke down
    mistake: PotluckError | None = None  # a mistake of the user's that shows only now


def follow(order: Order, site: Site, slot: Slot, board: Slot) -> Answer:
    """Run one order."""
    end, results = order.end, []
    places = [board if sent.on_board else slot for sent in order.jobs]
    jobs = [Job(sent.client, sent.round, at.views(sent.payload)) for at, sent in zip(places, order.jobs, strict=True)]
    try:
        kept = [slot.views(sent.personal) for sent in order.jobs]
        for update, personal in perform_bundle(order.work, site, jobs, kept):
            payload, end = slot.write(update.payload, end)
            own, end = slot.write(personal, end)
            results.append(Returned(payload, own, update.seconds, update.failure))
    except PotluckError as error:
        return Answer(order.ticket, [], mistake=error)
    except Exception:
        return Answer(order.ticket, [], crash=traceback.format_exc())
    return Answer(order.ticket, results)


def leave_with(lifeline: int) -> None:
    """End this process as soon as the parent is gone, even in the middle of a job."""
    os.read(lifeline, 1)  # nothing is ever written: it returns when the parent's end closes
    os._exit(1)


def main() -> None:
    """Serve orders; the arguments are the handles of the pipe, the lifeline, the luggage, the board and the slots."""
    handles = [int(argument) for argument in sys.argv[1:]]
    torch.set_num_threads(1)
    pipe, lifeline = Connection(handles[0]), handles[1]
    luggage, board, *slots = (Slot(handle) for handle in handles[2:])
    threading.Thread(target=leave_with, args=[lifeline], daemon=True).start()
    site: Site | None = None
    while True:
        try:
            message = pipe.recv()
        except (EOFError, ConnectionError):
            return
        if isinstance(message, bytes):
            site = unpack(message, luggage)
        else:
            assert site is not None
            pipe.send(follow(message, site, slots[message.slot], board))
