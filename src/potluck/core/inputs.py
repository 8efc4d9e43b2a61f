"""What a network is given: a tensor, several in order, several by name, or nested; and how it is called with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

Inputs = Any
"""A tensor, a tuple or list (arguments in order), or a dictionary (arguments by name); each may hold more of these."""


def call(net: nn.Module, inputs: Inputs) -> Any:
    """The network's output for a batch of inputs.

    >>> call(nn.Bilinear(2, 3, 4), (torch.zeros(1, 2), torch.zeros(1, 3))).shape
    torch.Size([1, 4])
    """
    if isinstance(inputs, Tensor):
        return net(inputs)
    args, kwargs = arguments(inputs)
    return net(*args, **kwargs)


def arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs as the arguments of a call, in order and by name."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return ((inputs,), {}) if isinstance(inputs, Tensor) else (tuple(inputs), {})


def mapped(change: Callable[[Any], Any], tree: Any) -> Any:
    """The same with every tensor changed."""
    return change(tree) if isinstance(tree, Tensor) else tree_map(change, tree)


def tensors_of(tree: Any) -> list[Tensor]:
    """All tensors in inputs or targets, in a fixed order."""
    return [tree] if isinstance(tree, Tensor) else [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def is_whole(tensor: Tensor) -> bool:
    """Whether these are whole numbers, which most layers take for tokens or not at all."""
    return not tensor.is_floating_point() and tensor.dtype is not torch.bool


def count_in(tree: Any) -> int:
    """How many examples a batch has."""
    return len(tree) if isinstance(tree, Tensor) else len(tensors_of(tree)[0])


def repeated(tree: Any, count: int) -> Any:
    """A batch of `count` examples, all like the one in a batch of one."""
    return mapped(lambda tensor: tensor.expand(count, *tensor.shape[1:]), tree)


def joined(trees: list[Any], join: Callable[[list[Tensor]], Tensor]) -> Any:
    """Several trees of one form as one, their tensors joined.

    >>> joined([{"a": torch.zeros(2)}, {"a": torch.ones(2)}], torch.stack)["a"].shape
    torch.Size([2, 2])
    """
    return join(trees) if isinstance(trees[0], Tensor) else tree_map(lambda *leaves: join(list(leaves)), *trees)
