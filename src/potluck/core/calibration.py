"""Batch-norm statistics that the clients measure when a model is to be used.

The measurement is a job of its own, fresh every time, and only sums leave a client. HeteroFL's rule
is the plain mean of per-batch means and of per-batch unbiased variances.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from potluck.core.batches import batches
from potluck.core.client import Site
from potluck.core.errors import UpdateError
from potluck.core.form import Form, form_of
from potluck.core.inputs import Inputs, call, count_in, repeated
from potluck.core.observe import Given, listening
from potluck.core.random import seeded
from potluck.core.types import Batch, Job, Tensors, Update

BATCHES = "batches"


def norms(net: nn.Module) -> dict[str, _BatchNorm]:
    """The network's batch-norm layers, by name."""
    return {name: module for name, module in net.named_modules() if isinstance(module, _BatchNorm)}


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
                if count_in(inputs) > 1:
                    raise
                continue
            for name, value in found.items():
                sums[name] = sums[name] + value if name in sums else value
    return sums


def statistics_of(net: nn.Module, inputs: Inputs) -> Tensors:
    """The mean and unbiased variance of what each norm is given when the network sees a batch, and a count of 1."""
    found: Tensors = {}

    def note(name: str, norm: nn.Module, given: Given) -> None:
        values = given[0].transpose(0, 1).flatten(1)
        if values.shape[1] < 2:
            return  # PyTorch refuses it in a moment
        variance, mean = torch.var_mean(values, dim=1)
        for kind, value in (("mean", mean), ("var", variance), (BATCHES, torch.ones(1))):
            key = f"{name}.{kind}"  # a layer that is used twice counts twice
            found[key] = found[key] + value.double() if key in found else value.double()

    with listening(norms(net), before=note):
        call(net, inputs)
    return found


def calibrate(site: Site, job: Job, personal: Tensors) -> tuple[Tensors, Tensors]:
    """A client's share of the measurement: one pass over its training data, augmented as in training."""
    ctx = site.context(job.round)
    with seeded(ctx.seed, "calibrate", job.round, job.client.id):
        net = site.placed(site.method.localize(job, ctx, personal))
        rng, size = ctx.rng("calibrate", job.client.id), site.task.train.batch_size
        stream = batches(site.holder.examples(job.client.id), size, 1, rng)
        sums = measure(net, site.moved(stream))
    if not sums:
        raise UpdateError("the client has no batch of two examples or more, on which batch norm could be measured")
    return sums, {}


def statistics_form(net: nn.Module, inputs: Inputs) -> Form:
    """What a client may answer a request to measure with."""
    with torch.no_grad():
        return form_of(statistics_of(net.train(), repeated(inputs, 2)))


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
