"""Static batch norm: no running statistics in training; the clients measure them when a model is to be used.

The measurement is a job of its own, fresh every time, and only sums leave a client. HeteroFL's rule
is the plain mean of per-batch means and of per-batch unbiased variances (algorithms 1.8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from potluck.core.client import Site
from potluck.core.data import batches
from potluck.core.random import seeded
from potluck.core.types import Batch, Job, Tensors, Update

BATCHES = "batches"


def norms(net: nn.Module) -> dict[str, _BatchNorm]:
    """The network's batch-norm layers, by name."""
    return {name: module for name, module in net.named_modules() if isinstance(module, _BatchNorm)}


def statistic_names(net: nn.Module) -> list[str]:
    """The names of the running statistics in the network's state."""
    return [f"{name}.{kind}" for name, norm in norms(net).items() for kind, _ in norm.named_buffers(recurse=False)]


def forget_statistics(net: nn.Module) -> nn.Module:
    """Normalise by each batch's own statistics and store none."""
    for norm in norms(net).values():
        norm.track_running_stats = False
        norm.running_mean = norm.running_var = norm.num_batches_tracked = None
    return net


def measure(net: nn.Module, stream: Iterable[Batch]) -> Tensors:
    """Per layer the sum over batches of the batch's mean and unbiased variance, and the number of batches.

    The network runs as in training but for dropout, which is off when the statistics are used. A
    batch of one example that leaves a layer a single value per channel has no variance: it is passed over.
    """
    sums: Tensors = {}
    net.train()
    for module in net.modules():
        if isinstance(module, _DropoutNd):
            module.eval()
    with torch.no_grad():
        for inputs, _ in stream:
            try:
                found = statistics_of(net, inputs)
            except ValueError:  # PyTorch's answer to a single value per channel
                if len(inputs) > 1:
                    raise
                continue
            for name, value in found.items():
                sums[name] = sums[name] + value if name in sums else value
    return sums


def statistics_of(net: nn.Module, inputs: Tensor) -> Tensors:
    """The mean and unbiased variance of what each norm is given when the network sees a batch, and a count of 1."""
    found: Tensors = {}

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def note(module: nn.Module, given: tuple[Tensor, ...]) -> None:
            values = given[0].transpose(0, 1).flatten(1)
            if values.shape[1] < 2:
                return  # PyTorch refuses it in a moment
            variance, mean = torch.var_mean(values, dim=1)
            for kind, value in (("mean", mean), ("var", variance), (BATCHES, torch.ones(1))):
                key = f"{name}.{kind}"  # a layer that is used twice counts twice
                found[key] = found[key] + value.double() if key in found else value.double()

        return note

    hooks = [norm.register_forward_pre_hook(watch(name)) for name, norm in norms(net).items()]
    try:
        net(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def calibrate(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """A client's share of the measurement: one pass over its training data, augmented as in training."""
    ctx = site.context(job.round)
    rng, held = ctx.rng("calibrate", job.client.id), site.holdings.of(job.client.id)
    with seeded(site.seed, "calibrate", job.round, job.client.id):
        net = site.placed(site.method.localize(job, ctx, personal))
        stream = batches(site.examples, held, site.task.train.batch_size, 1, rng)
        return measure(net, ((inputs.to(site.device), targets) for inputs, targets in stream)), personal


def combine(updates: Iterable[Update]) -> Tensors:
    """μ = Σ_b μ_b / B and σ² = Σ_b σ²_b / B over all batches b of all clients, as running statistics."""
    sums: Tensors = {}
    for update in updates:
        for name, value in update.payload.items():
            sums[name] = sums[name] + value if name in sums else value.clone()
    layers = [name.removesuffix(f".{BATCHES}") for name in sums if name.endswith(f".{BATCHES}")]
    found: Tensors = {}
    for layer in layers:
        count = sums[f"{layer}.{BATCHES}"]
        found[f"{layer}.running_mean"] = (sums[f"{layer}.mean"] / count).float()
        found[f"{layer}.running_var"] = (sums[f"{layer}.var"] / count).float()
        found[f"{layer}.num_batches_tracked"] = count.squeeze(0).long()
    return found


def install(net: nn.Module, statistics: Mapping[str, Tensor]) -> nn.Module:
    """Give an exported network the statistics that the clients measured."""
    for name, value in statistics.items():
        layer, _, kind = name.rpartition(".")
        buffer = getattr(net.get_submodule(layer), kind)
        if buffer is not None:  # its author wants batch statistics in use, too
            buffer.copy_(value)
    return net
