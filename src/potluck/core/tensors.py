"""Arithmetic on named tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from potluck.core.errors import ModelError, UpdateError
from potluck.core.types import Tensors

CHUNK = 1 << 15  # scalars worked on at a time: PyTorch gives more to several threads


def size_in_bytes(tensors: Mapping[str, Tensor]) -> int:
    """The bytes these tensors take on the wire, names aside."""
    return sum(t.numel() * t.element_size() for t in tensors.values())


def state_of(net: nn.Module) -> Tensors:
    """The network's parameters and persistent buffers, by name, detached but not copied."""
    return {name: tensor.detach() for name, tensor in net.state_dict().items()}


def copied(tensors: Mapping[str, Tensor]) -> Tensors:
    """The same tensors in memory of their own."""
    return {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}


def load(net: nn.Module, tensors: Mapping[str, Tensor], optional: Iterable[str] = ()) -> None:
    """Copy tensors into a network; every name must match, but those in `optional` may be missing."""
    try:
        missing, unexpected = net.load_state_dict(tensors, strict=False)
    except RuntimeError as error:  # a shape does not fit
        raise ModelError(f"these weights are of another network: {error}") from error
    missing = sorted(set(missing) - set(optional))
    if missing or unexpected:
        raise ModelError(
            f"these weights are of another network: it lacks {missing or 'nothing'}, it does not know {unexpected}"
        )


def require_finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuse an update that would poison the mean."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or math.isfinite(tensor.sum()):
            continue  # a finite sum has finite terms; an infinite one may come of large ones
        if not torch.isfinite(tensor).all():
            raise UpdateError(f"'{name}' has values that are not finite")


def restore_type(mean: Tensor, like: Tensor) -> Tensor:
    """A mean as the type it was made from; whole numbers (batch counters) are rounded."""
    return (mean if like.is_floating_point() else mean.round()).to(like.dtype)


def serial(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Pieces that no operation divides among threads; where a tensor has size 1, it is in every piece.

    PyTorch may round otherwise at the end of a thread's stretch. These pieces end where rows end or
    at multiples of any vector's length, so that they give the same bits as a single thread.
    """
    shape, size = tensors[0].shape, tensors[0].numel()
    if size <= CHUNK or torch.get_num_threads() == 1:
        yield tensors
        return
    if all(tensor.shape == shape and tensor.is_contiguous() for tensor in tensors):
        tensors, shape = tuple(tensor.view(-1) for tensor in tensors), torch.Size([size])
    dim = next(dim for dim, length in enumerate(shape) if length > 1)
    length = max(1, CHUNK * shape[dim] // size)
    for start in range(0, shape[dim], length):
        few = min(length, shape[dim] - start)
        yield from serial(*(tensor.narrow(dim, start, few) if tensor.shape[dim] > 1 else tensor for tensor in tensors))


def mean_type(like: Tensor) -> torch.dtype:
    """The type in which a mean of such tensors is kept: their own, at least float32."""
    return torch.promote_types(like.dtype, torch.float32)


def approach(mean: Tensor, sent: Tensor, ratio: float | Tensor, anew: bool = False) -> None:
    """mean += ratio · (sent - mean), exactly `sent` where they are equal; `anew`: also where the ratio is 1.

    The layout of `sent` and the number of threads do not show in the bits.
    """
    if not isinstance(ratio, Tensor) and ratio == 1:
        mean.copy_(sent)
        return
    sent = (sent if sent.dtype == mean.dtype else sent.to(mean.dtype)).contiguous()
    if not isinstance(ratio, Tensor):
        for into, new in serial(mean, sent):
            into.lerp_(new, ratio)
        return
    for into, new, share in serial(mean, sent, ratio):
        if anew:  # the old value may be infinite, or too far away to subtract
            into.copy_(torch.where(share == 1, new, into.lerp(new, share)))
        else:
            into.lerp_(new, share)


def mean_by_name(state: Tensors, weighted: Iterable[tuple[Tensors, float]]) -> Tensors:
    """w = Σ_k n_k w_k / Σ_k n_k (FedAvg, alg. 1), for each name over those who sent it; the rest keep their value.

    A running mean in the tensors' own precision (at least float32), whose error grows like √n
    units in the last place with the number of updates n; equal contributions give back their value
    exactly. Whole numbers are summed in float64 and rounded. The updates are consumed one at a
    time: no more than one is held.
    """
    mean: Tensors = {}
    weight: dict[str, float] = {}
    for tensors, share in weighted:
        for name, tensor in tensors.items() if share > 0 else ():
            old = state[name]
            weight[name] = weight.get(name, 0.0) + share
            if old.is_floating_point():
                if name not in mean:
                    mean[name] = torch.empty(tensor.shape, dtype=mean_type(old))
                approach(mean[name], tensor, share / weight[name])
            else:
                if name not in mean:
                    mean[name] = torch.zeros(tensor.shape, dtype=torch.float64)
                mean[name].add_(tensor, alpha=share)
    sums = {name: total / weight[name] for name, total in mean.items() if not state[name].is_floating_point()}
    return {**state, **{name: restore_type(tensor, state[name]) for name, tensor in {**mean, **sums}.items()}}
