"""What a level costs a device: counted where it can be counted, measured where it must be."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from potluck.core.fit import fit
from potluck.core.method import Method
from potluck.core.tensors import size_in_bytes
from potluck.core.types import Batch, Client, Context, Job, Level, Tensors

MEMORY_EVENT = "[memory]"


@dataclass(frozen=True)
class LevelCost:
    """One device class's share of the work: per network, per example, per round."""

    level: str
    ratio: float
    parameters: int
    macs: int  # multiply-accumulates of one forward pass of one example
    bytes_down: int
    bytes_up: int


def count_parameters(net: nn.Module) -> int:
    """How many scalars the network learns."""
    return sum(parameter.numel() for parameter in net.parameters())


def count_macs(net: nn.Module, example: Tensor) -> int:
    """Multiply-accumulates of one example's forward pass in convolutions and matrix products, by PyTorch's own counter.

    Two examples are counted, since batch norm without statistics cannot run on one; and the
    counter takes a multiply-accumulate for two operations.
    """
    training = net.training
    net.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        net(example.expand(2, *example.shape[1:]))
    net.train(training)
    return int(counter.get_total_flops()) // 2 // 2


def typical_client(level: Level, ctx: Context) -> Client:
    """A client of this level with every label, to count with."""
    return Client(id=0, level=level, size=ctx.task.train.batch_size, labels=tuple(range(ctx.task.classes)))


def level_cost(method: Method, state: Tensors, level: Level, ctx: Context) -> LevelCost:
    """Count what a client of this level receives, computes and sends."""
    client = typical_client(level, ctx)
    job = Job(client, ctx.round, method.distribute(state, client, ctx))
    net = method.localize(job, ctx, {})
    sent, _ = method.collect(net, job, ctx)
    return LevelCost(
        level=level.name,
        ratio=level.ratio,
        parameters=count_parameters(net),
        macs=count_macs(net, ctx.task.example[0]),
        bytes_down=size_in_bytes(job.payload),
        bytes_up=size_in_bytes(sent),
    )


def peak_training_memory(method: Method, state: Tensors, level: Level, ctx: Context) -> int:
    """Bytes that PyTorch's allocator held at most while a client of this level took one training step.

    A network of its own, its gradients, the optimiser's state and the activations of one batch
    are all allocated while the profiler watches.
    """
    client = typical_client(level, ctx)
    job = Job(client, ctx.round, method.distribute(state, client, ctx))
    batch = example_batch(ctx)
    fresh = Context(ctx.task, ctx.round, ctx.seed)  # an empty memo: the network is built under the profiler
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        net = method.localize(job, fresh, {})
        for phase in method.phases(job, fresh):
            fit(net, phase, [batch], ctx.task.train, ctx.task.train.lr)
    events = [event for event in watched.profiler.kineto_results.events() if event.name() == MEMORY_EVENT]
    held = peak = 0
    for event in sorted(events, key=lambda event: int(event.start_ns())):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def example_batch(ctx: Context) -> Batch:
    """A batch of the size clients train with, in the shape of the task's example."""
    inputs, targets = (
        tensor.expand(ctx.task.train.batch_size, *tensor.shape[1:]).contiguous() for tensor in ctx.task.example
    )
    return inputs, targets
