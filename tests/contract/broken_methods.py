"""Methods with one fault each, all of them FedAvg otherwise, so that every check can be seen to fail."""

import os
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt

from potluck.core.means import NameMean
from potluck.core.method import build_network
from potluck.core.tensors import load
from potluck.methods.fedavg import FedAvg
from potluck.parts.batchnorm import statistic_names


def moved(mean, towards, share):
    """A mean moved by a share of the way to something else; exact where the two are equal."""
    return {
        name: value + share * (towards[name] - value) if value.is_floating_point() else value
        for name, value in mean.items()
    }


@dataclass(frozen=True)
class DefaultOutOfRange(FedAvg):
    """Its default is not a value that a config file may give."""

    rate: Annotated[float, Gt(0)] = 0.0


@dataclass(frozen=True)
class SettingThatAFileChanges(FedAvg):
    """Its setting is not what it was when a file has held it."""

    rates: object = (0.5, 0.25)


@dataclass(frozen=True)
class SettingNoFileCanHold(FedAvg):
    """Its setting cannot be written down, so that no two machines can agree on it."""

    device: object = torch.device("cpu")


@dataclass(frozen=True)
class Undocumented(FedAvg):
    rate: float = 0.5


class ForgotTheDecorator(FedAvg):
    """Its setting looks like one, but no config can set it."""

    rate: float = 0.5


@dataclass(frozen=True)
class SendsInfinity(FedAvg):
    """Sends a note that is not finite, and throws it away on arrival."""

    def distribute(self, state, client, ctx):
        return {**state, "note": torch.tensor(float("inf"))}

    def localize(self, job, ctx, personal):
        return super().localize(replace(job, payload=without_note(job.payload)), ctx, personal)

    def export(self, state, level, ctx):
        net = ctx.build(self.trains(level, ctx))
        load(net, state)
        return net.eval()


def without_note(payload):
    return {name: tensor for name, tensor in payload.items() if name != "note"}


@dataclass(frozen=True)
class ClipsUpdatesInPlace(FedAvg):
    """Clips what it was given instead of a copy."""

    lossless: ClassVar[bool] = False
    reduces_to_fedavg: ClassVar[bool] = False

    def aggregate(self, state, updates, ctx):
        return super().aggregate(state, (clipped_in_place(update) for update in updates), ctx)


def clipped_in_place(update):
    clip_in_place(update.payload)
    return update


def clip_in_place(payload):
    for tensor in payload.values():
        if tensor.is_floating_point():
            tensor.clamp_(-0.1, 0.1)


@dataclass(frozen=True)
class ClipsItsPayloadInPlace(FedAvg):
    """A client changes what it was sent."""

    lossless: ClassVar[bool] = False
    reduces_to_fedavg: ClassVar[bool] = False

    def distribute(self, state, client, ctx):
        return {name: tensor.clone() for name, tensor in state.items()}

    def localize(self, job, ctx, personal):
        clip_in_place(job.payload)
        return super().localize(job, ctx, personal)


@dataclass(frozen=True)
class AveragesIntoItsState(FedAvg):
    """Writes the mean over the state it was given."""

    def aggregate(self, state, updates, ctx):
        for name, value in super().aggregate(state, updates, ctx).items():
            state[name].copy_(value)
        return state


@dataclass(frozen=True)
class DecaysWhatNobodyTrained(FedAvg):
    """Shrinks the weights whether anybody trained or not, and says it is lossless."""

    reduces_to_fedavg: ClassVar[bool] = False

    def aggregate(self, state, updates, ctx):
        mean = NameMean(state)
        for update in updates:
            mean.add(shrunk_payload(update.payload), update.client.size)
        return mean.result()


def shrunk_payload(payload):
    return {name: 0.9 * tensor if tensor.is_floating_point() else tensor for name, tensor in payload.items()}


@dataclass(frozen=True)
class NeverLearns(FedAvg):
    """Looks at every update and keeps none."""

    reduces_to_fedavg: ClassVar[bool] = False

    def aggregate(self, state, updates, ctx):
        for _ in updates:
            pass
        return state


@dataclass(frozen=True)
class HalfAStep(FedAvg):
    """Goes half of the way to the mean, and says it is FedAvg where FedAvg would do."""

    def aggregate(self, state, updates, ctx):
        return moved(super().aggregate(state, updates, ctx), state, 0.5)


@dataclass(frozen=True)
class LastOneWins(FedAvg):
    """Takes whatever arrives last."""

    reduces_to_fedavg: ClassVar[bool] = False

    def aggregate(self, state, updates, ctx):
        for update in updates:
            state = {**state, **update.payload}
        return state


@dataclass(frozen=True)
class ForgetsWhatNobodySends(FedAvg):
    """Its next state is what was sent, and nothing else."""

    def aggregate(self, state, updates, ctx):
        mean, sent = NameMean(state), set()
        for update in updates:
            mean.add(update.payload, update.client.size)
            sent |= set(update.payload)
        return {name: value for name, value in mean.result().items() if not sent or name in sent}


@dataclass(frozen=True)
class LeaksStatistics(FedAvg):
    """Does not send batch-norm statistics, so a client starts from those of whoever used the network before."""

    def distribute(self, state, client, ctx):
        hidden = statistic_names(ctx.build(self.trains(client.level, ctx)))
        return {name: tensor for name, tensor in state.items() if name not in hidden}

    def localize(self, job, ctx, personal):
        net = ctx.once(build_network, self.trains(job.client.level, ctx))
        load(net, job.payload, optional=statistic_names(net))
        return net

    def collect(self, net, job, ctx):
        sent, _ = super().collect(net, job, ctx)
        return {name: tensor for name, tensor in sent.items() if name not in statistic_names(net)}, {}

    def export(self, state, level, ctx):
        net = ctx.build(self.trains(level, ctx))
        load(net, state)
        return net.eval()


@dataclass(frozen=True)
class ExportsForTraining(FedAvg):
    """Its exported network would drop units when used."""

    def export(self, state, level, ctx):
        return super().export(state, level, ctx).train()


@dataclass(frozen=True)
class LeavesAHook(FedAvg):
    """Its exported network carries a hook of ours."""

    def export(self, state, level, ctx):
        net = super().export(state, level, ctx)
        net.head.register_forward_hook(lambda module, inputs, output: None)
        return net


@dataclass(frozen=True)
class TooLargeForItsLevel(FedAvg):
    """Gives small devices the network of the large ones."""

    def admits(self, level, ctx):
        return True


@dataclass(frozen=True)
class DependsOnTheProcess(FedAvg):
    """What a client sends depends on the process that it runs in."""

    lossless: ClassVar[bool] = False
    reduces_to_fedavg: ClassVar[bool] = False

    def collect(self, net, job, ctx):
        sent, _ = super().collect(net, job, ctx)
        return {n: t + os.getpid() * 1e-5 if t.is_floating_point() else t for n, t in sent.items()}, {}


@dataclass(frozen=True)
class RemembersOutsideItsState(FedAvg):
    """Pulls the mean towards the first state that this process has seen, which no checkpoint holds."""

    reduces_to_fedavg: ClassVar[bool] = False

    def aggregate(self, state, updates, ctx):
        anchor = ctx.once(nothing_yet)
        anchor.update(anchor or state)
        return moved(super().aggregate(state, updates, ctx), anchor, 0.1)


def nothing_yet(*args):
    """Something that a process remembers, and others do not know of."""
    return {}


@dataclass(frozen=True)
class LosesWhatSomeLearn(FedAvg):
    """Every other client sends back what it was sent, whatever it learned."""

    reduces_to_fedavg: ClassVar[bool] = False

    def collect(self, net, job, ctx):
        return (dict(job.payload), {}) if job.client.id % 2 else super().collect(net, job, ctx)


@dataclass(frozen=True)
class HasOwnModelsInSecret(FedAvg):
    """Every client trains with a last bias of its own, but is said to have everybody's model."""

    reduces_to_fedavg: ClassVar[bool] = False

    def localize(self, job, ctx, personal):
        net = super().localize(job, ctx, personal)
        if personal:
            net.head.bias.data.copy_(personal["own"])
        return net

    def collect(self, net, job, ctx):
        return super().collect(net, job, ctx)[0], {"own": net.head.bias.detach() + 0.1}


@dataclass(frozen=True)
class HasNoOwnModels(FedAvg):
    """Every client is said to have a model of its own, but what it keeps is of no use to it."""

    shares_model: ClassVar[bool] = False

    def collect(self, net, job, ctx):
        return super().collect(net, job, ctx)[0], {"round": torch.tensor(job.round)}


@dataclass(frozen=True)
class OneNetworkForAnyLevels(FedAvg):
    """Says that levels may have any networks, and trains that of the largest everywhere."""

    takes_any_networks: ClassVar[bool] = True


@dataclass(frozen=True)
class AnswersOtherwiseWhenAskedAgain(FedAvg):
    """A client that is asked once more, as when its worker died, gives another answer."""

    lossless: ClassVar[bool] = False
    reduces_to_fedavg: ClassVar[bool] = False

    def collect(self, net, job, ctx):
        asked = ctx.once(nothing_yet, job.client.id, job.round)
        asked[len(asked)] = "asked"
        sent, _ = super().collect(net, job, ctx)
        return {n: t + 0.1 * (len(asked) - 1) if t.is_floating_point() else t for n, t in sent.items()}, {}


@dataclass(frozen=True)
class CountsDown(FedAvg):
    """Takes shorter steps towards the last round, and does not say so."""

    lossless: ClassVar[bool] = False
    reduces_to_fedavg: ClassVar[bool] = False

    def aggregate(self, state, updates, ctx):
        return moved(super().aggregate(state, updates, ctx), state, 1 / (ctx.task.rounds - ctx.round + 1))


FAULTS = [
    (DefaultOutOfRange, "its settings are a config", "rate is 0.0"),
    (SettingThatAFileChanges, "its settings are a config", "do not survive a config file"),
    (Undocumented, "its settings are a config", "docstring"),
    (ForgotTheDecorator, "its settings are a config", "dataclass"),
    (SendsInfinity, "its payload survives the wire", "'note' is not finite"),
    (ClipsUpdatesInPlace, "it leaves its inputs alone", "its update in place"),
    (ClipsItsPayloadInPlace, "it leaves its inputs alone", "its payload in place"),
    (AveragesIntoItsState, "it leaves its inputs alone", "its state in place"),
    (DecaysWhatNobodyTrained, "nobody trains, nothing changes", "conv.weight"),
    (NeverLearns, "training changes the state", "the state is what it was"),
    (LosesWhatSomeLearn, "nothing learned is lost", "neither sends what it learned nor keeps it"),
    (HasOwnModelsInSecret, "a client's own model is used", "set shares_model = False"),
    (HasNoOwnModels, "a client's own model is used", "('round') does not change it"),
    (OneNetworkForAnyLevels, "levels may have networks of their own", "level 'other' does not train the network"),
    (AnswersOtherwiseWhenAskedAgain, "the layout of tensors does not show", "shows in its answer"),
    (HalfAStep, "one level is FedAvg", "conv.weight"),
    (LastOneWins, "the order of updates does not matter", "another order"),
    (ForgetsWhatNobodySends, "what nobody sends survives", "the state loses"),
    (LeaksStatistics, "a client needs only its payload", "more than its payload"),
    (ExportsForTraining, "an exported model is plain", "training mode"),
    (LeavesAHook, "an exported model is plain", "hooks on ['head']"),
    (TooLargeForItsLevel, "an exported model is plain", "'small'"),
    (DependsOnTheProcess, "engines agree", "disagree"),
    (RemembersOutsideItsState, "a resumed run is the same run", "after a resume"),
    (CountsDown, "a longer run begins the same", "set looks_ahead = True"),
]
"""(a method, the only check that it fails, what the check must say)."""
