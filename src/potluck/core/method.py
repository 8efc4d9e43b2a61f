"""The one abstraction a paper fills in: seven verbs whose defaults are FedAvg.

A method is a frozen dataclass of hyper-parameters. It holds no state, so the same object
serves the server and every client, in whatever process they live. Its fields are its
configuration schema; its constructor stores them and does nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from potluck.core.panels import Panel
from potluck.core.tensors import load, mean_by_name, state_of
from potluck.core.types import Batch, Client, Context, Job, Level, Phase, Tensors, Update


@dataclass(frozen=True)
class Method:
    """Override what your paper changes; what you leave alone is FedAvg."""

    paper: ClassVar[str] = ""
    lossless: ClassVar[bool] = True  # nobody trains => aggregation gives back the state it started from
    reduces_to_fedavg: ClassVar[bool] = True  # with one level at ratio 1 and equal clients, the paper says so
    ratio_is_width: ClassVar[bool] = True  # a level's model is no larger than the network of that width

    @property
    def calibrated(self) -> bool:
        """Whether exported batch norm needs statistics that the clients measure first."""
        return False

    # ---- which clients, which network ----

    def admits(self, level: Level, ctx: Context) -> bool:
        """Whether a device of this level can take part: by default, if it can carry its network."""
        return level.ratio >= self.ratio(level, ctx)

    def ratio(self, level: Level, ctx: Context) -> float:
        """The size of the network that a device of this level trains."""
        return ctx.task.largest.ratio

    def sizes(self, ctx: Context) -> set[float]:
        """The sizes of all the networks that the method builds; others need not be possible."""
        return {self.ratio(level, ctx) for level in ctx.task.levels}

    # ---- on the server ----

    def init(self, ctx: Context) -> Tensors:
        """The server's state before the first round."""
        return state_of(ctx.build(self.ratio(ctx.task.largest, ctx)))

    def distribute(self, state: Tensors, client: Client, ctx: Context) -> Tensors:
        """What this client is sent."""
        return state

    def aggregate(self, state: Tensors, updates: Iterable[Update], ctx: Context) -> Tensors:
        """The next state. `updates` is a stream: take each once, keep none."""
        return mean_by_name(state, ((update.payload, update.client.size) for update in updates))

    def export(self, state: Tensors, level: Level, ctx: Context, personal: Tensors | None = None) -> nn.Module:
        """A plain network to deploy on devices of this level: no hooks, nothing of ours inside."""
        net = ctx.build(self.ratio(level, ctx))
        load(net, self.distribute(state, model_owner(level, ctx), ctx))
        return net.eval()

    def diagnose(self, state: Tensors, ctx: Context, joined: Mapping[str, int]) -> dict[str, Any]:
        """Numbers worth watching after a round, for the record; `joined` counts the clients of each level."""
        return {}

    def explain(self, level: Level, ctx: Context) -> dict[str, str]:
        """What becomes of each layer at a level, and why, for methods that treat layers differently."""
        return {}

    def panels(self, state: Tensors, ctx: Context) -> Sequence[Panel]:
        """Pictures of the state worth looking at."""
        return ()

    # ---- on the client ----

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        """The network this client trains, made from the payload and what stayed on the client alone."""
        level = job.client.level
        net = ctx.once(("net", level), lambda: ctx.build(self.ratio(level, ctx)))
        load(net, job.payload)
        return net

    def phases(self, job: Job, ctx: Context) -> Sequence[Phase]:
        """What the client trains for, one stretch after the other."""
        return [Phase(plain_loss)]

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        """(what is sent back, what stays here); live tensors, which the engine copies."""
        return state_of(net), {}


def model_owner(level: Level, ctx: Context) -> Client:
    """Nobody in particular, of this level and with every label: whom an exported model is for."""
    return Client(id=-1, level=level, size=0, labels=tuple(range(ctx.task.classes)))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy; any dimensions between batch and classes count as more examples."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def plain_loss(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
    """Cross-entropy of the network's logits."""
    inputs, targets = batch
    return cross_entropy(net(inputs), targets)
