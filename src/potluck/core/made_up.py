"""Examples that are made up: as data in shape and type, but nobody's data."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from potluck.core.copying import copied
from potluck.core.inputs import Inputs, mapped
from potluck.core.observe import observe

KINDS = (7, 3, 1)  # whole numbers from 1 to this many: a network may take the first ones only, or 0 for padding


def runnable(net: nn.Module, example: Inputs) -> Inputs:
    """The example, or the first one made up like it for which a network gives finite numbers.

    A network may take zeros for padding, and has nothing to say of padding alone.
    """
    tries = [example, *(mapped(partial(made_up, most=most), example) for most in KINDS)]
    net = copied(net)  # a run may leave something behind
    return next((each for each in tries if gives_numbers(net, each)), tries[0])


def made_up(like: Tensor, most: int) -> Tensor:
    """Whole numbers 1, 2, … and again, or fractions above 0 and up to 1.

    >>> made_up(torch.zeros(1, 5, dtype=torch.long), 3), made_up(torch.zeros(1, 2), 3)
    (tensor([[1, 2, 3, 1, 2]]), tensor([[0.5000, 1.0000]]))
    """
    places = torch.arange(like.numel()).reshape(like.shape)
    if like.is_floating_point():
        return ((places + 1) / max(1, like.numel())).to(like.dtype)
    return (places % most + 1).to(like.dtype)


def gives_numbers(net: nn.Module, example: Inputs) -> bool:
    """Whether a network runs on an example, and what it gives is finite."""
    try:
        output = observe(net, example)
    except Exception:  # whatever the user's own code raises
        return False
    found = [each for each in tree_leaves(output) if isinstance(each, Tensor) and each.is_floating_point()]
    return all(each.numel() and (each.is_meta or bool(each.isfinite().all())) for each in found)
