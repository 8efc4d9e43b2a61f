"""A ready-made network at any width: a narrow copy of the user's own nn.Module.

The network is run once on an example to find its channels. A narrow copy holds the first of every
block of them; sizes that modules remember are brought up to date; then the copy runs on the same
example, and every tensor on the way has to be narrower by the channels it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch import nn

from potluck.core.copying import copied
from potluck.core.inputs import Inputs
from potluck.core.made_up import runnable
from potluck.core.names import own_name
from potluck.parts.cut.channels import Rounding
from potluck.parts.cut.plan import Plan
from potluck.parts.match import check_names, setting_for
from potluck.parts.shrink.check import Divergence
from potluck.parts.shrink.recipe import Recipe, RefusedError, find_recipe
from potluck.parts.shrink.settle import STEPS
from potluck.parts.trace.findings import Findings, findings, study

NEARBY = 6  # modules or biases to try to keep whole before a network is refused


@dataclass(frozen=True, eq=False)
class Shrinkable:
    """A network that can be had at any width up to 1.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> Shrinkable(net, (torch.zeros(1, 4),))(0.5)
    Sequential(
      (0): Linear(in_features=4, out_features=4, bias=True)
      (1): ReLU()
      (2): Linear(in_features=4, out_features=2, bias=True)
    )
    """

    net: nn.Module
    example: Inputs
    keep: tuple[str, ...] = ()  # modules or tensors that stay whole
    rounding: Rounding = "ceil"
    recipes: dict[float, Recipe] = field(default_factory=dict, repr=False)  # for widths that were asked for before

    @cached_property
    def tried(self) -> Inputs:
        """The example, or one made up like it that the network can take."""
        return runnable(self.net, self.example)

    @cached_property
    def findings(self) -> Findings:
        """The network's channels, found when they are first asked for."""
        return study(self.net, self.tried, kept_tensors(self.net, self.keep))

    @property
    def __name__(self) -> str:
        return type(self.net).__name__

    def __getstate__(self) -> dict[str, object]:
        return {
            key: value for key, value in vars(self).items() if key not in ("findings", "tried")
        }  # large, and the recipes suffice

    def __call__(self, width: float) -> nn.Module:
        """A copy of this width, with the first channels of every block."""
        if width == 1:
            return copied(self.net)
        if width not in self.recipes:
            self.recipes[width] = self.recipe(width)
        return self.recipes[width].follow(self.net)

    def recipe(self, width: float) -> Recipe:
        """How a copy of this width is made."""
        try:
            return find_recipe(self.net, self.tried, self.findings, self.plan(width))
        except RefusedError as refused:
            raise RefusedError(refused.problem, self.enough_to_keep(refused.problem, width)) from None

    def enough_to_keep(self, problem: Divergence, width: float) -> list[str]:
        """What only has to stay whole for the rest to be made narrower: near the problem, there or in every layer."""
        for name in self.nearby(problem):
            for names in dict.fromkeys([(name,), self.alike(name)]):
                kept = kept_tensors(self.net, (*self.keep, *names))
                found = findings(self.findings.trace, kept)
                plan = found.channels.plan(found.channels.counts(width, self.rounding))
                try:
                    find_recipe(self.net, self.tried, found, plan, STEPS // 10)
                except RefusedError:
                    continue
                if plan.narrowed:
                    return list(names)
        return []

    def alike(self, name: str) -> tuple[str, ...]:
        """The modules or tensors of this name in every layer of a list."""
        named = [*dict(self.net.named_modules()), *dict(self.net.named_parameters())]
        return tuple(each for each in named if without_numbers(each) == without_numbers(name))

    def nearby(self, problem: Divergence) -> list[str]:
        """What runs around a problem, and what ran before it, the smallest first; a bias is what a layer puts out."""
        paths = [place.strip("'").split(".") for place in (problem.where, problem.after) if place.startswith("'")]
        names = [".".join(path[:end]) for path in paths for end in range(len(path), 0, -1)]
        tensors = {
            **dict(self.net.named_parameters(remove_duplicate=False)),
            **dict(self.net.named_buffers(remove_duplicate=False)),
        }
        each = [name for at in names for name in (own_name(at, "bias"), at) if name == at or name in tensors]
        sizes = {name: sum(tensors[own].numel() for own in kept_tensors(self.net, (name,))) for name in each}
        return sorted((name for name in sizes if sizes[name]), key=lambda name: sizes[name])[:NEARBY]

    def plan(self, width: float) -> Plan:
        """What a copy of this width holds."""
        channels = self.findings.channels
        return channels.plan(channels.counts(width, self.rounding))


def without_numbers(name: str) -> str:
    """A name without the places that its modules have in lists."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "0", name)


def kept_tensors(net: nn.Module, keep: Sequence[str]) -> list[str]:
    """The tensors that the user's names stand for."""
    tensors = [*dict(net.named_parameters(remove_duplicate=False)), *dict(net.named_buffers(remove_duplicate=False))]
    named = {"keep": keep}
    check_names(named, [*dict(net.named_modules(remove_duplicate=False)), *tensors], "module or tensor")
    return [tensor for tensor in tensors if setting_for(tensor, named)]
