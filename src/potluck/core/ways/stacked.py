"""Training several clients of one level at once: their weights and batches are stacked, every step is one for all.

For small networks the time of a step is that of calling PyTorch, not of computing. The loss of each client depends on
its own weights alone, so the gradient of the sum of all losses is each client's own gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.dropout import _DropoutNd

from potluck.core.errors import ConfigError
from potluck.core.fit import optimizer_of, pieces
from potluck.core.goals.goal import scalar
from potluck.core.inputs import Inputs
from potluck.core.mixed import require_precise
from potluck.core.types import Batch, Loss, Phase, Tensors, Train
from potluck.core.ways.stacked_operations import StackedOperations


class Lossy(nn.Module):
    """A network and its loss as one module, so that the loss, too, sees the weights it is called with."""

    def __init__(self, net: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.net = net
        self.loss = loss

    def forward(self, batch: Batch, extra: Tensors) -> Tensor:
        return scalar(self.loss(self.net, batch, extra))  # several of each client would be added up


def stack(states: Sequence[Mapping[str, Tensor]]) -> Tensors:
    """Tensors of several clients as one each, a client per row."""
    return {name: torch.stack([state[name] for state in states]) for name in (states[0] if states else ())}


def live(net: nn.Module) -> Tensors:
    """All tensors of a network that training may change, under the names that the network itself uses."""
    return {name: tensor.detach() for name, tensor in (*net.named_parameters(), *net.named_buffers())}


def fit_stacked(
    net: nn.Module,
    states: Tensors,
    phases: Sequence[Phase],
    stream: Iterable[Batch],
    train: Train,
) -> None:
    """Train stacked states in place on a stream of stacked batches; the network gives the structure only."""
    require_stackable(net, train)
    first = phases[0]
    extra = stack([phase.extra for phase in phases])
    lossy = Lossy(net, first.loss)
    trained = [name for name, p in net.named_parameters() if p.requires_grad and first.trains(name)]
    leaves = {name: states[name].requires_grad_(True) for name in trained}
    optimizer = optimizer_of(leaves.items(), first.decays, train)
    losses = losses_of(lossy)
    net.train()
    try:
        for batch in stream:
            optimizer.zero_grad()
            if train.accumulate == 1:
                losses(states, batch, extra).sum().backward()
            else:
                for piece, share in pieces(batch, train.batch_size, dim=1):
                    (losses(states, piece, extra).sum() * share).backward()
            if train.clip:
                clip_each(leaves.values(), train.clip)
            optimizer.step()
    finally:
        for leaf in leaves.values():
            leaf.requires_grad_(False)


def losses_of(lossy: Lossy) -> Callable[[Tensors, Batch, Tensors], Tensor]:
    """The loss of every client, each with its own weights, batch and extra."""
    every = [*lossy.named_parameters(remove_duplicate=False), *lossy.named_buffers(remove_duplicate=False)]
    tied = len(every) > len({id(tensor) for _, tensor in every})

    def losses(states: Tensors, batch: Batch, extra: Tensors) -> Tensor:
        names = [f"net.{name}" for name in states]

        def one(inputs: Inputs, targets: Any, *tensors: Tensor) -> Tensor:
            weights = dict(zip(names, tensors, strict=False))
            with StackedOperations():
                found: Tensor = functional_call(
                    lossy,
                    weights,
                    ((inputs, targets), dict(zip(extra, tensors[len(names) :], strict=True))),
                    tie_weights=tied,  # looking for them takes time in every step
                )
            return found

        return vmap(one)(*batch, *states.values(), *extra.values())  # one after the other: nothing to be taken apart

    return losses


def clip_each(parameters: Iterable[Tensor], most: float) -> None:
    """Scale each client's gradient down to a global L2 norm of at most `most`, as PyTorch's clip_grad_norm_ does."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients])
    scale = (most / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))


def require_stackable(net: nn.Module, train: Train) -> None:
    """Refuse what would draw other random numbers for clients at once than for one after the other, and optimisers that
    might mix the clients' weights."""
    if not train.rule.elementwise:
        raise ConfigError(
            f"clients cannot be trained stacked, since it is not known that {train.rule.name} steps each number by "
            "itself; choose engine.step = 'counted' or 'plain'"
        )
    require_precise(train)
    dropping = [name for name, m in net.named_modules() if isinstance(m, _DropoutNd) and m.p > 0]
    if dropping:
        raise ConfigError(
            f"clients cannot be trained stacked, since '{dropping[0]}' drops units at random for each on its own; "
            "choose engine.step = 'counted' or 'plain'"
        )
