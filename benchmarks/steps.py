"""How much cheaper a small level's training step really is: figures for people, never asserted.

ResNet-18 at batch 32, one thread. Every level's step is timed in turn, round after round, beside the whole network's,
so that what disturbs the machine disturbs all; each in the plain way and with channels last: the ratio is that of the
faster ones. Peak memory is what PyTorch's allocator held at most in a plain step.

python benchmarks/steps.py
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import median

import torch
from figures import Figure, in_turns, seconds, show
from tasks import shapes_alone
from torch import nn

from potluck.core.fit import fit
from potluck.core.method import Method
from potluck.core.threads import one_thread
from potluck.core.types import Context, Job, Level, Train
from potluck.core.ways.way import CHANNELS_LAST, PLAIN, Way
from potluck.methods.fedhm import FedHM
from potluck.methods.heterofl import HeteroFL
from potluck.parts.cost.level import example_batch, level_cost, measure_step, typical_job

RATIOS = {"fedhm": (1.0, 0.5, 0.25, 0.125), "heterofl": (1.0, 0.64, 0.5, 0.35)}  # as FedHM's authors compare them
REPEATS = 9


def context(ratios: tuple[float, ...]) -> Context:
    """ResNet-18 for CIFAR-10 at these ratios."""
    task = shapes_alone("resnet18", ratios, Train(batch_size=32))
    return Context(replace(task, example=(torch.rand_like(task.example[0]), task.example[1])), round=0, seed=0)


def step(method: Method, net: nn.Module, job: Job, ctx: Context, way: Way) -> float:
    """The seconds of one training step."""
    (phase,), batch, train = method.phases(job, ctx, {}), way.batch(example_batch(ctx)), ctx.task.train
    with way.arranged(net):
        return seconds(lambda: fit(net, way.phase(phase, train), [batch], train))


def measure(method: Method, ctx: Context) -> list[Figure]:
    """Two figures per level."""
    state, found = method.init(ctx), []
    jobs = {level: typical_job(method, state, level, ctx) for level in ctx.task.levels}
    nets = {level: method.localize(job, ctx, {}) for level, job in jobs.items()}
    contestants = {
        f"{level.name} {name}": partial(step, method, nets[level], jobs[level], ctx, Way.called(name))
        for level in jobs
        for name in (PLAIN, CHANNELS_LAST)
    }
    in_turns(contestants, 1)  # to warm up
    times = in_turns(contestants, REPEATS)
    whole = ctx.task.levels[0]

    def fastest(level: Level) -> list[float]:
        return min((times[f"{level.name} {name}"] for name in (PLAIN, CHANNELS_LAST)), key=median)

    cost = {level: level_cost(method, state, level, ctx) for level in jobs}
    memory = {level: measure_step(method, state, level, ctx).peak_training_memory for level in jobs}
    for level in jobs:
        macs = cost[whole].macs / cost[level].macs
        faster = median(one / other for one, other in zip(fastest(whole), fastest(level), strict=True))
        plain = median(
            one / other
            for one, other in zip(times[f"{whole.name} {PLAIN}"], times[f"{level.name} {PLAIN}"], strict=True)
        )
        took = " / ".join(f"{median(times[f'{level.name} {name}']):.3f}" for name in (PLAIN, CHANNELS_LAST))
        beside = (
            f"{faster:.2f}x faster at {macs:.2f}x fewer MACs; plainly {plain:.2f}x ({plain / macs:.0%}); "
            f"{took} s plain / channels last; {cost[level].parameters / 1e6:.2f}M parameters"
        )
        title = f"{type(method).__name__} {level.name}"
        found.append(Figure("a level's step", f"{title}, share of the MAC ratio", 100 * faster / macs, "%", beside))
        less = f"{memory[whole] / memory[level]:.2f}x less than the whole network"
        found.append(Figure("a level's step", f"{title}, peak memory", memory[level] / 2**20, "MiB", less))
    return found


def figures() -> list[Figure]:
    """FedHM's levels and HeteroFL's."""
    with one_thread():
        return measure(FedHM(), context(RATIOS["fedhm"])) + measure(HeteroFL(), context(RATIOS["heterofl"]))


if __name__ == "__main__":
    show(figures())
