"""How much cheaper a small level's training step really is: figures for people, never asserted.

ResNet-18 at batch 32, one thread. Every level's step is timed in turn, round after round, beside the whole network's,
so that what disturbs the machine disturbs all. Peak memory is what PyTorch's allocator held at most in a step.

python benchmarks/steps.py
"""

from __future__ import annotations

import time
from statistics import median

import torch
from torch import nn

from potluck.core.fit import fit
from potluck.core.method import Method
from potluck.core.threads import one_thread
from potluck.core.types import Context, Job, Level, Task, Train
from potluck.methods.fedhm import FedHM
from potluck.methods.heterofl import HeteroFL
from potluck.models.catalogue import find_model
from potluck.parts.cost import example_batch, level_cost, measure_step, typical_job

RATIOS = {"fedhm": (1.0, 0.5, 0.25, 0.125), "heterofl": (1.0, 0.64, 0.5, 0.35)}  # as FedHM's authors compare them
REPEATS = 9


def context(ratios: tuple[float, ...]) -> Context:
    """ResNet-18 for CIFAR-10 at these ratios."""
    levels = tuple(Level(f"{ratio:g}", ratio) for ratio in ratios)
    example = (torch.rand(1, 3, 32, 32), torch.zeros(1, dtype=torch.long))
    task = Task(find_model("resnet18"), levels, 10, ("head.weight", "head.bias"), example, Train(batch_size=32))
    return Context(task, round=0, seed=0)


def step(method: Method, net: nn.Module, job: Job, ctx: Context) -> float:
    """The seconds of one training step."""
    (phase,), batch = method.phases(job, ctx), example_batch(ctx)
    started = time.perf_counter()
    fit(net, phase, [batch], ctx.task.train, ctx.task.train.lr)
    return time.perf_counter() - started


def measure(method: Method, ctx: Context) -> None:
    """A line per level."""
    state = method.init(ctx)
    levels = ctx.task.levels
    jobs = [typical_job(method, state, level, ctx) for level in levels]
    nets = [method.localize(job, ctx, {}) for job in jobs]
    for net, job in zip(nets, jobs, strict=True):
        step(method, net, job, ctx)
    times = [[step(method, net, job, ctx) for net, job in zip(nets, jobs, strict=True)] for _ in range(REPEATS)]
    costs = [level_cost(method, state, level, ctx) for level in levels]
    memory = [measure_step(method, state, level, ctx).peak_training_memory for level in levels]
    for at, level in enumerate(levels):
        seconds = median(row[at] for row in times)
        macs, faster = costs[0].macs / costs[at].macs, median(row[0] / row[at] for row in times)
        print(
            f"{type(method).__name__:<10}{level.ratio:>7g}{costs[at].parameters / 1e6:>9.2f}M"
            f"{macs:>11.2f}x{seconds:>10.3f}s{faster:>9.2f}x{faster / macs:>9.0%}"
            f"{memory[at] / 2**20:>9.0f} MiB{memory[0] / memory[at]:>9.2f}x"
        )


def main() -> None:
    """A table for each method."""
    print("A training step of ResNet-18, batch 32, one thread; ratios are whole network : level")
    print(
        f"{'method':<10}{'level':>7}{'params':>10}{'MACs':>12}{'step':>11}{'faster':>10}{'of MACs':>9}"
        f"{'peak':>13}{'less':>10}"
    )
    with one_thread():
        measure(FedHM(), context(RATIOS["fedhm"]))
        measure(HeteroFL(), context(RATIOS["heterofl"]))


if __name__ == "__main__":
    main()
