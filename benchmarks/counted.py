"""How good the counted choice of a way to train is: beside the plain way and the fastest, network by network.

Clients with made-up data, a few batches each, on one thread; all ways take turns. Figures for people, never asserted;
the rule in `core/ways/counted.py` was made of them.

python benchmarks/counted.py [PART OF A NAME ...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import torch
from figures import Figure, in_turns, show
from tasks import CONTESTS, shapes_alone
from torch import nn

from potluck.core.client import Site
from potluck.core.data import Arrays, Holdings, Pool
from potluck.core.method import Method
from potluck.core.networks import ByWidth
from potluck.core.recipe import Recipe
from potluck.core.threads import one_thread
from potluck.core.types import Client, Job, Task, Train
from potluck.core.ways.agree import agrees
from potluck.core.ways.counted import Load, ways_for
from potluck.core.ways.trial import Plan, candidates, trial
from potluck.core.ways.way import PLAIN, Way
from potluck.methods.flanc import FLANC
from potluck.parts.cost.level import count_macs

REPEATS, BATCHES, CLASSES, TOGETHER = 5, 3, 10, 25
PFL = Train(lr=0.01, momentum=0.0, weight_decay=0.0, clip=0.0, epochs=1)


@dataclass(frozen=True)
class Case:
    """A network, how it is trained, and by which method."""

    name: str
    task: Task
    method: Method


def cases() -> Iterator[Case]:
    """Networks of the papers at several widths, and those of the simulators' contest."""
    for name, widths, batches in (
        ("heterofl-cnn", (1.0, 0.25, 0.0625), (10,)),
        ("flanc-cnn", (1.0, 0.25), (32,)),
        ("preresnet18", (1.0, 0.25, 0.0625), (10,)),
        ("resnet18", (1.0, 0.35), (32,)),
        ("lg-mlp", (1.0, 0.25), (10, 32)),
        ("lg-cnn", (1.0, 0.5), (10, 50)),
    ):
        for width in widths:
            for batch in batches:
                yield Case(f"{name} {width:g}", shapes_alone(name, (width,), replace(PFL, batch_size=batch)), Method())
    for form in ("compose", "grouped"):
        settings = Train(lr=0.01, clip=0.0, batch_size=32)
        yield Case(f"flanc {form}", shapes_alone("flanc-cnn", (1.0, 0.5), settings), FLANC(form=form))
    for contest in CONTESTS.values():
        yield Case(contest.name, own(contest.model, contest.shape, contest.train()), Method())
    yield Case("small digits cnn", own(digits, (1, 8, 8), replace(PFL, batch_size=10)), Method())


def digits(width: float = 1.0) -> nn.Module:
    """A small network for images of eight by eight."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def own(model: Callable[[float], nn.Module], shape: tuple[int, ...], train: Train) -> Task:
    """A task with a network that is not in the catalogue."""
    example = (torch.zeros(1, *shape), torch.zeros(1, dtype=torch.long))
    return replace(shapes_alone("lg-mlp", (1.0,), train), model=ByWidth(model), example=example)


def measure(case: Case) -> Figure:
    """How fast the counted way is, and which way is the fastest."""
    task, method, batch = case.task, case.method, case.task.train.batch_size
    rng = torch.Generator().manual_seed(0)
    count = BATCHES * batch
    examples = Arrays(torch.randn(count, *task.example[0].shape[1:], generator=rng), torch.arange(count) % CLASSES)
    level = task.levels[0]
    site = Site(Recipe(method, task, 0), Pool(examples, Holdings.of_lists([torch.arange(count)])))
    client, ctx = Client(0, level, count, tuple(range(CLASSES)), turn=0), site.context(0)
    job = Job(client, 0, method.distribute(method.init(ctx), client, ctx))
    net = method.localize(job, ctx, {})
    load = Load(batch, count_macs(net, task.example[0], batch), TOGETHER)
    suited = ways_for(net, task.example[0], load)
    names = [n for n in candidates(net, Plan(load, 0, suited[0])) if n == PLAIN or agrees(Way.called(n), site, job, {})]
    runs = {name: trial(Way.called(name), site, job, {}) for name in names}
    each = {name: partial(timed, runs[name], Way.called(name).stack) for name in names}
    in_turns(each, 1)  # to warm up
    took = in_turns(each, REPEATS)
    faster = {name: median(one / other for one, other in zip(took[PLAIN], took[name], strict=True)) for name in names}
    chosen = next(name for name in suited if name in names)
    beside = ", ".join(f"{name} {gain:.2f}x" for name, gain in faster.items() if name != PLAIN)
    scale = f"{load.batch_macs / 1e6:.3g}M MACs a batch of {batch}, plain {1e3 * median(took[PLAIN]) / BATCHES:.2f} ms"
    return Figure("counted", case.name, faster[chosen], "x", f"{chosen}; {beside}; {scale}")


def timed(run: Callable[[int], None], stack: int) -> float:
    """The seconds of one client, of the processor and not of the clock: so others on the machine disturb less."""
    started = time.process_time()
    run(BATCHES)
    return (time.process_time() - started) / stack


def figures(names: list[str] | None = None) -> list[Figure]:
    """The cases asked for, all of them if none is."""
    chosen = [case for case in cases() if not names or any(name in case.name for name in names)]
    with one_thread():
        return [measure(case) for case in chosen]


if __name__ == "__main__":
    show(figures(sys.argv[1:]))
