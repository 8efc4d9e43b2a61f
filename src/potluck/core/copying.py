"""Copies of networks, and the tensors in them that are neither parameters nor buffers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from potluck.core.names import own_name

INSIDE = frozenset(vars(nn.Module()))  # where PyTorch itself keeps parameters, buffers, modules and hooks


def copied(net: nn.Module) -> nn.Module:
    """A copy with tensors of its own."""
    return copy.deepcopy(net, {id(tensor): tensor.detach().clone() for tensor in plain_tensors(net).values()})


def plain_tensors(net: nn.Module) -> dict[str, Tensor]:
    """Tensors in modules' own attributes: constants, what a run left, weights that a hook computes (weight_norm).

    >>> net = nn.Linear(2, 3)
    >>> net.cache = {"mean": Tensor([1.0]), "steps": 7}
    >>> plain_tensors(net)
    {'cache.0': tensor([1.])}
    """
    held = {id(tensor) for tensor in (*net.parameters(), *net.buffers())}
    found: dict[str, Tensor] = {}
    for prefix, module in net.named_modules():
        for name, value in own_values(module):
            leaves = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
            for number, leaf in enumerate(leaves):
                if id(leaf) not in held and not isinstance(leaf, nn.Parameter):
                    found[own_name(prefix, name if leaf is value else f"{name}.{number}")] = leaf
    return found


def replace_plain_tensors(net: nn.Module, others: Mapping[int, Tensor]) -> None:
    """Put other tensors where those with these ids are."""
    for module in net.modules():
        for name, value in list(own_values(module)):
            if any(id(leaf) in others for leaf in tree_leaves(value)):
                vars(module)[name] = tree_map(lambda leaf: others.get(id(leaf), leaf), value)


def own_values(module: nn.Module) -> Iterator[tuple[str, object]]:
    """The attributes of one module that are tensors or may hold some."""
    for name, value in vars(module).items():
        if name not in INSIDE and isinstance(value, Tensor | list | tuple | dict):
            yield name, value
