"""The one abstraction a paper fills in: seven verbs whose defaults are FedAvg.

A method is a frozen dataclass of hyper-parameters. It holds no state, so the same object
serves the server and every client, in whatever process they live. Its fields are its
configuration schema; its constructor stores them and does nothing else.

What a method may show of itself (`diagnose`, `explain`, `panels`) is in core/insight.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from potluck.core.form import Form, form_of
from potluck.core.means import NameMean
from potluck.core.tensors import load, state_of
from potluck.core.types import Client, Context, Job, Level, Phase, Tensors, Update


@dataclass(frozen=True)
class Method:
    """Override what your paper changes; what you leave alone is FedAvg."""

    paper: ClassVar[str] = ""
    lossless: ClassVar[bool] = True  # nobody trains => aggregation gives back the state it started from
    reduces_to_fedavg: ClassVar[bool] = True  # with one level at ratio 1 and equal clients, the paper says so
    ratio_is_width: ClassVar[bool] = True  # a level's model is no larger than the network of that width
    shares_model: ClassVar[bool] = True  # False: every client has a model of its own, and is scored with it
    takes_any_networks: ClassVar[bool] = False  # True: levels may have networks that are not sizes of one
    looks_ahead: ClassVar[bool] = False  # True: it reads ctx.task.rounds, so a longer run is another from the start
    steps_plainly: ClassVar[bool] = False  # True: it needs steps w - η·g, so momentum, clipping and Adam are refused

    @property
    def calibrated(self) -> bool:
        """Whether exported batch norm needs statistics that the clients measure first."""
        return False

    # ---- which clients, which network ----

    def admits(self, level: Level, ctx: Context) -> bool:
        """Whether a device of this level can take part: by default, if it can carry its network."""
        return level.ratio >= self.trains(level, ctx).ratio

    def trains(self, level: Level, ctx: Context) -> Level:
        """The level whose network a device of this level trains."""
        return ctx.task.largest

    def builds(self, ctx: Context) -> Iterable[Level]:
        """The levels whose networks the method builds; other networks need not be possible."""
        return dict.fromkeys(self.trains(level, ctx) for level in ctx.task.levels)

    # ---- on the server ----

    def init(self, ctx: Context) -> Tensors:
        """The server's state before the first round."""
        return state_of(ctx.build(self.trains(ctx.task.largest, ctx)))

    def distribute(self, state: Tensors, client: Client, ctx: Context) -> Tensors:
        """What this client is sent."""
        return state

    def aggregate(self, state: Tensors, updates: Iterable[Update], ctx: Context) -> Tensors:
        """The next state. `updates` is a stream: take each once, keep none."""
        mean = NameMean(state)
        for update in updates:
            mean.add(update.payload, update.client.size)
        return mean.result()

    def export(self, state: Tensors, level: Level, ctx: Context) -> nn.Module:
        """A plain network to deploy on devices of this level: no hooks, nothing of ours inside."""
        net = ctx.build(self.trains(level, ctx))
        load(net, self.distribute(state, recipient(level, ctx), ctx))
        return net.eval()

    # ---- on the client ----

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        """The network this client trains, made from the payload and what stayed on the client alone."""
        net = ctx.once(build_network, self.trains(job.client.level, ctx))
        load(net, job.payload)
        return net

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        """What the client trains for, one stretch after the other."""
        return [Phase(ctx.task.goal)]

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        """(what is sent back, what stays here); live tensors, which the engine copies."""
        return state_of(net), {}

    # ---- at the border ----

    def expects(self, job: Job, ctx: Context) -> Form:
        """The names, shapes and types that a client may answer this job with: by default, what one that does not train
        would send."""
        return form_of(self.collect(self.localize(job, ctx, {}), job, ctx)[0])


def build_network(level: Level, ctx: Context) -> nn.Module:
    """The plain network of a level, for `ctx.once`."""
    return ctx.build(level)


def recipient(level: Level, ctx: Context) -> Client:
    """A stand-in client of a level that has every label, for models that are exported and costs that are counted."""
    return Client(id=-1, level=level, size=ctx.task.train.batch_size, labels=tuple(range(ctx.task.classes)))
