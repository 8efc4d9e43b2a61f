"""What a level costs a device: counted where it can be counted, measured where it must be."""

from __future__ import annotations

import copy
import os
import time
from contextlib import nullcontext
from dataclasses import dataclass

from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from potluck.core.errors import ModelError
from potluck.core.fit import fit
from potluck.core.inputs import Inputs, count_in, mapped, repeated
from potluck.core.method import Method, recipient
from potluck.core.observe import observe
from potluck.core.tensors import size_in_bytes, state_of
from potluck.core.types import Batch, Context, Job, Level, Tensors
from potluck.parts.cost.paper_counts import Counter, fedhm_macs, heterofl_flops

MEMORY_EVENT = "[memory]"
TIMED_SECONDS, TIMED_STEPS = 0.5, 20  # time steps for about this long, but no more of them than this


@dataclass(frozen=True)
class LevelCost:
    """One device class's share of the work: per network, per example, per round."""

    level: str
    ratio: float
    parameters: int  # scalars, frozen ones included
    trained: int  # those of them that learn
    space: float  # MiB of the parameters as 4-byte floats
    macs: int  # multiply-accumulates of one example's forward pass
    paper_macs: int | None  # the same as FedHM's tables count them; None where they have no rule
    heterofl_flops: int | None  # the same as HeteroFL's tables count "FLOPs"
    bytes_down: int
    bytes_up: int


@dataclass(frozen=True)
class Measured:
    """What one training step of a level took on this machine."""

    peak_training_memory: int  # bytes
    seconds_per_step: float


def count_parameters(net: nn.Module) -> int:
    """How many scalars the network's parameters have, frozen ones included."""
    return sum(parameter.numel() for parameter in net.parameters())


def count_trained(net: nn.Module) -> int:
    """How many scalars the network learns."""
    return sum(parameter.numel() for parameter in net.parameters() if parameter.requires_grad)


def count_macs(net: nn.Module, example: Inputs, batch_size: int = 2) -> int:
    """Multiply-accumulates of one example's forward pass in convolutions and matrix products, by PyTorch's own counter.

    What a network computes once per batch (weights that are composed) is divided among the batch's examples.
    On the meta device, where fused kernels (attention, LSTM) fall apart into products that the
    counter knows; a network that must see real values is counted on the CPU.
    """
    several = repeated(example, max(2, batch_size))
    try:
        on_meta = mapped(lambda tensor: tensor.to("meta"), several)
        return flops(copy.deepcopy(net).to("meta"), on_meta) // 2 // count_in(several)
    except (NotImplementedError, RuntimeError):
        return flops(net, several) // 2 // count_in(several)


def flops(net: nn.Module, inputs: Inputs) -> int:
    """Floating-point operations of a forward pass, two for a multiply-accumulate."""
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = Untracked()  # type: ignore[assignment]
    with counter:
        observe(net, inputs)
    return int(counter.get_total_flops())


class Untracked(nullcontext[None]):
    """In the place of the counter's record of which module runs.

    The total is all we need, and the record asks every output that requires a gradient for the operation that made it,
    which a view of a parameter does not have while gradients are off.
    """

    parents = frozenset(("Global",))


def paper_count(counter: Counter, net: nn.Module, example: Inputs) -> int | None:
    """A paper's count of one example's cost, or None where the paper has no rule."""
    try:
        return counter(net, repeated(example, 2)) // 2  # batch norm without statistics cannot run on one
    except ModelError:
        return None


def typical_job(method: Method, state: Tensors, level: Level, ctx: Context) -> Job:
    """The job of a client of this level that has every label."""
    client = recipient(level, ctx)
    return Job(client, ctx.round, method.distribute(state, client, ctx))


def level_cost(method: Method, state: Tensors, level: Level, ctx: Context) -> LevelCost:
    """Count what a client of this level receives, computes and sends."""
    job, example = typical_job(method, state, level, ctx), ctx.task.example[0]
    net = method.localize(job, ctx, {})
    sent, _ = method.collect(net, job, ctx)
    parameters = count_parameters(net)
    return LevelCost(
        level=level.name,
        ratio=level.ratio,
        parameters=parameters,
        trained=count_trained(net),
        space=4 * parameters / 2**20,
        macs=count_macs(net, example, ctx.task.train.batch_size),
        paper_macs=paper_count(fedhm_macs, net, example),
        heterofl_flops=paper_count(heterofl_flops, net, example),
        bytes_down=size_in_bytes(job.payload),
        bytes_up=size_in_bytes(sent),
    )


def measure_step(method: Method, state: Tensors, level: Level, ctx: Context) -> Measured:
    """Take training steps as a client of this level does, one under a memory profiler and then some by the clock.

    Gradients, the optimiser's state and the activations of one batch are allocated while the
    profiler watches PyTorch's allocator; the network itself is there before and is added.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler writes to the user's terminal
    job, batch, settings = typical_job(method, state, level, ctx), example_batch(ctx), ctx.task.train
    net = method.localize(job, ctx, {})
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        for phase in method.phases(job, ctx, {}):
            fit(net, phase, [batch], phase.train or settings)
    events = [event for event in watched.profiler.kineto_results.events() if event.name() == MEMORY_EVENT]
    held = peak = 0
    for event in sorted(events, key=lambda event: int(event.start_ns())):
        held += event.nbytes()
        peak = max(peak, held)
    steps, started = 0, time.perf_counter()
    while steps < TIMED_STEPS and time.perf_counter() - started < TIMED_SECONDS:
        for phase in method.phases(job, ctx, {}):
            fit(net, phase, [batch], phase.train or settings)
        steps += 1
    return Measured(size_in_bytes(state_of(net)) + peak, (time.perf_counter() - started) / steps)


def example_batch(ctx: Context) -> Batch:
    """A batch of the size clients train with, in the shape of the task's example."""
    count = ctx.task.train.batch_size
    inputs, targets = mapped(lambda tensor: tensor.contiguous(), repeated(ctx.task.example, count))
    return inputs, targets
