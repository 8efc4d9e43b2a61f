"""Arithmetic on named tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from potluck.core.errors import ModelError, UpdateError
from potluck.core.types import Tensors


def size_in_bytes(tensors: Mapping[str, Tensor]) -> int:
    """The bytes these tensors take on the wire, names aside."""
    return sum(t.numel() * t.element_size() for t in tensors.values())


def state_of(net: nn.Module) -> Tensors:
    """The network's parameters and persistent buffers, by name, detached but not copied."""
    return {name: tensor.detach() for name, tensor in net.state_dict().items()}


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
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise UpdateError(f"'{name}' has values that are not finite")


def restore_type(mean: Tensor, like: Tensor) -> Tensor:
    """A float64 mean as the type it was made from; whole numbers (batch counters) are rounded."""
    return (mean if like.is_floating_point() else mean.round()).to(like.dtype)


def mean_by_name(state: Tensors, weighted: Iterable[tuple[Tensors, float]]) -> Tensors:
    """w = Σ_k n_k w_k / Σ_k n_k (FedAvg, alg. 1), for each name over those who sent it; the rest keep their value.

    Sums are float64, so equal contributions give back their value exactly. The updates are
    consumed one at a time: no more than one is held.
    """
    total: Tensors = {}
    weight: dict[str, float] = {}
    for tensors, share in weighted:
        for name, tensor in tensors.items():
            if name not in total:
                total[name] = torch.zeros_like(tensor, dtype=torch.float64)
            total[name].add_(tensor, alpha=share)
            weight[name] = weight.get(name, 0.0) + share
    return {
        **state,
        **{name: restore_type(total[name] / weight[name], state[name]) for name in total if weight[name] > 0},
    }
