"""What a server's part of a round costs beside copying: figures for people, never asserted.

Ten clients of four widths: their parts are taken from a ResNet-18, and what they send is averaged into
the next one, round after round. Beside it, as many bytes are copied from one place in memory to another.

python benchmarks/aggregation.py
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import median

import torch
from figures import Figure, in_turns, ratio, seconds, show
from tasks import shapes_alone

from potluck.core.method import Method, recipient
from potluck.core.random import stream
from potluck.core.tensors import size_in_bytes
from potluck.core.threads import one_thread
from potluck.core.types import Context, Update
from potluck.methods.fedavg import FedAvg
from potluck.methods.fedrolex import FedRolex
from potluck.methods.heterofl import HeteroFL

WIDTHS = (1.0, 0.5, 0.25, 0.125, 1.0, 0.5, 0.25, 0.125, 1.0, 0.5)
ROUNDS = 25


class Rounds:
    """A state that is handed out and averaged again and again, and room to copy what is sent in each round."""

    def __init__(self, method: Method) -> None:
        task = shapes_alone("resnet18", sorted(set(WIDTHS), reverse=True))
        self.method, self.ctx = method, Context(task, round=400, seed=0)
        self.state = method.init(self.ctx)
        levels, rng = {level.ratio: level for level in self.ctx.task.levels}, stream(0, "sent")
        owners = [recipient(levels[width], self.ctx) for width in WIDTHS]
        self.clients = [replace(client, id=number, size=500) for number, client in enumerate(owners)]
        self.sent = [
            {name: torch.randn(tensor.shape, generator=rng) for name, tensor in payload.items()}
            for payload in (method.distribute(self.state, client, self.ctx) for client in self.clients)
        ]
        self.room = [{name: torch.zeros_like(tensor) for name, tensor in sent.items()} for sent in self.sent]

    def hand_out(self) -> None:
        for client in self.clients:
            self.method.distribute(self.state, client, self.ctx)

    def average(self) -> None:
        updates = (Update(client, sent) for client, sent in zip(self.clients, self.sent, strict=True))
        self.state = self.method.aggregate(self.state, updates, self.ctx)

    def copy(self) -> None:
        for room, sent in zip(self.room, self.sent, strict=True):
            for name, tensor in sent.items():
                room[name].copy_(tensor)


def measure(name: str, method: Method) -> Figure:
    """What is averaged in a second beside what is copied; medians, since other work disturbs single figures."""
    rounds = Rounds(method)
    sent = sum(map(size_in_bytes, rounds.sent)) / 1e9
    work = {"hand out": rounds.hand_out, "average": rounds.average, "copy": rounds.copy}
    took = in_turns({what: partial(seconds, does) for what, does in work.items()}, ROUNDS)
    share = ratio(took["copy"], took["average"])
    out, average, copy = (median(times) for times in took.values())
    beside = (
        f"averages {sent / average:.1f} GB/s, memory copies {sent / copy:.1f} GB/s; handing out takes {out:.3f} s more"
        f" on top of {average:.3f} s"
    )
    return Figure("aggregation", f"{name}, GB/s averaged against copied", 100 * share, "%", beside)


def figures() -> list[Figure]:
    """One figure per method."""
    with one_thread():
        return [measure(type(method).__name__, method) for method in (HeteroFL(), FedRolex(), FedAvg())]


if __name__ == "__main__":
    show(figures())
