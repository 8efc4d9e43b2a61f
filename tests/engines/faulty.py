"""What a user may have written, with a bug in it: `here` marks the line that fails."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from toys import INPUTS, make_site

from potluck.core.client import Site
from potluck.core.data import Arrays, Pool
from potluck.core.goals.classes import Classes
from potluck.core.method import Method
from potluck.core.types import Batch, Client, Context, Job, Phase, Tensors

WHO = 2  # the client that a bug is about, where it is about one


@dataclass(frozen=True)
class Buggy(Method):
    """FedAvg that fails in one of its verbs, for one client, or in its loss, for everybody."""

    where: str = ""

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        if self.where == "localize" and job.client.id == WHO:
            raise KeyError("own")  # here: localize
        return super().localize(job, ctx, personal)

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        if self.where == "phases" and job.client.id == WHO:
            raise ValueError("no phase of the moon")  # here: phases
        return [Phase(buggy_loss if self.where == "loss" else Classes())]

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        sent, kept = super().collect(net, job, ctx)
        if self.where == "collect" and job.client.id == WHO:
            torch.cat([sent["0.weight"], sent["0.bias"]])  # here: collect
        return sent, kept


def buggy_loss(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """Nobody gives it a temperature."""
    return Classes()(net, batch, extra) / extra["temperature"]  # here: loss


class BuggyNet(nn.Sequential):
    """Its last layer does not fit."""

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self:
            inputs = layer(inputs)
        return inputs @ torch.ones(7, 3)  # here: forward


def mlp(width: float) -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, 3))


def buggy_mlp(width: float) -> nn.Module:
    return BuggyNet(*mlp(width))  # type: ignore[misc]


def buggy_prepare(inputs: Tensor) -> Tensor:
    """It divides by zero."""
    return inputs * (1 // (len(inputs) - len(inputs)))  # here: prepare


BUGS = {
    "localize": "KeyError: 'own'",
    "phases": "ValueError: no phase of the moon",
    "collect": "RuntimeError: Tensors must have same number of dimensions: got 2 and 1",
    "loss": "KeyError: 'temperature'",
    "forward": "RuntimeError: ",
    "prepare": "ZeroDivisionError: ",
}
"""What each bug says."""

OF_ONE = ("localize", "phases", "collect")
"""Bugs that one client runs into; the others are everybody's."""


def buggy_site(where: str) -> Site:
    """A site with a bug in this place."""
    site = make_site(Buggy(where), buggy_mlp if where == "forward" else mlp)
    if where != "prepare":
        return site
    assert isinstance(site.holder, Pool)
    whole = site.holder.train
    assert isinstance(whole, Arrays)
    pool = Pool(Arrays(whole.inputs, whole.targets, buggy_prepare), site.holder.holdings)
    return Site(site.recipe, pool, works=site.works)


def place_of(where: str) -> str:
    """The file and line of a bug."""
    lines = inspect.getsource(sys.modules[__name__]).splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if line.endswith(f"# here: {where}"))
    return f"{__file__}:{number}"


def nobody(client: Client) -> Client:
    """A client of the same level that does not exist: no site has data of it, which is no user's fault."""
    return Client(99, client.level, client.size, client.labels)
