"""A worker process: keeps one site, and runs jobs on it until its parent is gone."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from potluck.core.client import Site, Work, perform
from potluck.core.types import Client, Job
from potluck.engines.luggage import unpack
from potluck.engines.slot import Layout, Slot


@dataclass(frozen=True)
class Order:
    """Parent to worker: run this work on the job whose tensors lie in the slot."""

    ticket: int
    slot: int
    work: Work
    client: Client
    round: int
    payload: Layout
    personal: Layout
    end: int  # the first free byte of the slot, where the answer may begin


@dataclass(frozen=True)
class Answer:
    """Worker to parent: what came of an order; its tensors lie behind the order's in the same slot."""

    ticket: int
    payload: Layout
    personal: Layout
    seconds: float = 0.0
    failure: str = ""
    crash: str = ""  # the traceback, if the work broke down


def follow(order: Order, site: Site, slot: Slot) -> Answer:
    """Run one order."""
    job = Job(order.client, order.round, slot.views(order.payload))
    try:
        update, personal = perform(order.work, site, job, slot.views(order.personal))
        payload, end = slot.write(update.payload, order.end)
        kept, _ = slot.write(personal, end)
    except Exception:
        return Answer(order.ticket, [], [], crash=traceback.format_exc())
    return Answer(order.ticket, payload, kept, update.seconds, update.failure)


def leave_with(lifeline: int) -> None:
    """End this process as soon as the parent is gone, even in the middle of a job."""
    os.read(lifeline, 1)  # nothing is ever written: it returns when the parent's end closes
    os._exit(1)


def main() -> None:
    """Serve orders; the arguments are the handles of the pipe, the lifeline, the luggage and the slots."""
    handles = [int(argument) for argument in sys.argv[1:]]
    torch.set_num_threads(1)
    pipe, lifeline, luggage = Connection(handles[0]), handles[1], Slot(handles[2])
    slots = [Slot(handle) for handle in handles[3:]]
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
            pipe.send(follow(message, site, slots[message.slot]))
