"""FLANC: every width's weights are composed of one basis that all share and coefficients of its own.

Mei, Guo, Zhou, Patel: Resource-Adaptive Federated Learning with All-In-One Neural Composition (NeurIPS 2022).

There is no global network. The basis of a layer is trained by everybody, whatever their width, so that
a wide network learns from narrow devices' data too; coefficients and all that is not composed belong to
a width and are averaged among its clients.

Departures:
- As in the authors' code, and unlike the paper's "every layer", the stem, 1x1 shortcuts, the head and
  norms are not composed. `compose` and `whole` change that layer by layer.
- The orthogonality of a basis is the mean over the entries of V Vᵀ - I, as in the code; eq. 3 has the sum.
- Means are weighted by examples, as in eq. 4; the code's are not. The values of a width of which nobody
  took part are kept.
- R2 is at most R1 k², since no more pieces can be orthogonal. Matrices reach that, kernels hardly.
- In a recurrent layer R2 is a share of the hidden width, not of all gates together.
- The two bases of a residual block are drawn separately; the code draws them as halves of one matrix.
- Every width's network is built from one seed, so a layer that is the same at every width (the stem of the paper's
  networks) starts from the same weights at each; in the code every width draws its own.
- A layer is computed in the form that takes fewer operations; the code always works in groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn

from potluck.core.errors import ModelError
from potluck.core.goals.goal import Goal
from potluck.core.method import Method, recipient
from potluck.core.names import placed
from potluck.core.panels import Panel
from potluck.core.random import seeded
from potluck.core.tensors import load, state_of
from potluck.core.threads import one_thread
from potluck.core.types import Batch, Client, Context, Job, Level, Phase, Ratio, Tensors
from potluck.parts.compose import layers as parts
from potluck.parts.compose.banks import FULL, Settings, declared_start, find_banks, outputs_of
from potluck.parts.compose.layers import Bank
from potluck.parts.compose.pictures import basis_panels
from potluck.parts.width.per_size import owned


@dataclass(frozen=True)
class FLANC(Method):
    """Each width composes its weights of a basis shared by all and coefficients of its own."""

    paper: ClassVar[str] = "Mei, Guo, Zhou, Patel: All-In-One Neural Composition (NeurIPS 2022)"
    reduces_to_fedavg: ClassVar[bool] = False  # weights are composed even if there is one width only

    basis_size: Ratio = 0.125  # R1 as a share of a layer's inputs at width 1
    basis_count: Ratio = 0.25  # R2 as a share of its outputs at width 1
    orthogonality: Annotated[float, Ge(0)] = 10.0  # λ
    norm_of: parts.NormOf = "mean"  # over the entries of V Vᵀ - I; "sum" is the paper's eq. 3
    coefficients: parts.Start | None = None  # how they start; as the network says, or "uniform", if not given
    form: Literal["auto", "compose", "grouped"] = "auto"  # how a layer is computed; auto: in fewer operations
    compose: tuple[str, ...] = ()  # layers or blocks to compose though they usually are not
    whole: tuple[str, ...] = ()  # layers or blocks not to compose

    def trains(self, level: Level, ctx: Context) -> Level:
        return level

    def builds(self, ctx: Context) -> Iterable[Level]:
        return [FULL, *ctx.task.levels]

    def init(self, ctx: Context) -> Tensors:
        state: Tensors = {}
        start = self.coefficients or declared_start(ctx.build(FULL))
        for level in ctx.task.levels:
            state |= self.wired(parts.compose_layers(ctx.build(level), self.banks(ctx)), level, ctx)
        for bank in self.banks(ctx):
            with seeded(ctx.seed, "basis", bank.layer):
                state[shared(bank)] = parts.start_basis(state[shared(bank)])
            for level in ctx.task.levels:
                with seeded(ctx.seed, "coefficients", bank.layer, level.ratio):
                    state[own(bank, level)] = parts.start_coefficients(state[own(bank, level)], start)
        return state

    def distribute(self, state: Tensors, client: Client, ctx: Context) -> Tensors:
        return {name: state[name] for name in self.names(client.level, ctx).values() if name in state}

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        level = job.client.level
        net = ctx.once(FLANC.network, self, level)
        load(net, {name: job.payload[wire] for name, wire in self.names(level, ctx).items()})
        return net

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        return [Phase(partial(composed_loss, ctx.task.goal, self.orthogonality, self.norm_of))]

    def collect(self, net: nn.Module, job: Job, ctx: Context) -> tuple[Tensors, Tensors]:
        return self.wired(net, job.client.level, ctx), {}

    def export(self, state: Tensors, level: Level, ctx: Context) -> nn.Module:
        trained = sorted({known.ratio for known in ctx.task.levels})
        if level.ratio not in trained:
            known = ", ".join(f"{ratio:g}" for ratio in trained)
            raise ModelError(
                f"there is no network of ratio {level.ratio:g}: every width has coefficients of its own ({known})"
            )
        held = self.distribute(state, recipient(level, ctx), ctx)
        with one_thread():
            weights = {b.weight_name: parts.compose(held[shared(b)], held[own(b, level)]) for b in self.banks(ctx)}
        net = ctx.build(level)
        load(net, weights | {name: held[owned(level, name)] for name in state_of(net) if name not in weights})
        return net.eval()

    def diagnose(self, state: Tensors, ctx: Context, joined: Mapping[str, int]) -> dict[str, Any]:
        """How far each basis is from orthogonal, and how large each width's coefficients are (sec. 3.3)."""
        banks = self.banks(ctx)
        with one_thread():
            apart = {bank.layer: float(parts.orthogonality(state[shared(bank)], "mean")) for bank in banks}
        return {
            "gram_error": apart,
            "coefficients": {
                str(level.ratio): {bank.layer: float(state[own(bank, level)].abs().mean()) for bank in banks}
                for level in ctx.task.levels
            },
        }

    def panels(self, state: Tensors, ctx: Context) -> Sequence[Panel]:
        """The Gram matrices of the bases, and how large coefficients are (figures 6 and 5)."""
        banks = self.banks(ctx)
        coefficients = {
            f"{level.ratio:g}": {bank.layer: state[own(bank, level)] for bank in banks} for level in ctx.task.levels
        }
        return basis_panels({bank.layer: state[shared(bank)] for bank in banks}, coefficients)

    def explain(self, level: Level, ctx: Context) -> dict[str, str]:
        return {
            layer: f"composed: R1 = {found.size}, R2 = {found.count}" if isinstance(found, Bank) else f"left: {found}"
            for layer, found in self.candidates(ctx).items()
        }

    def candidates(self, ctx: Context) -> dict[str, Bank | str]:
        """The basis of every layer that is composed, or why it is not."""
        settings = Settings(self.basis_size, self.basis_count, self.compose, self.whole)
        return ctx.once(find_banks, settings)

    def banks(self, ctx: Context) -> list[Bank]:
        """The bases of the layers that are composed."""
        return [bank for bank in self.candidates(ctx).values() if isinstance(bank, Bank)]

    def network(self, level: Level, ctx: Context) -> nn.Module:
        """The composed network of a level, each layer in the form that suits it."""
        net, batch = ctx.build(level), ctx.task.train.batch_size
        outputs = outputs_of(net, ctx.task.example[0])
        grouped = [bank.layer for bank in self.banks(ctx) if self.groups(bank, net, outputs, batch)]
        return parts.compose_layers(net, self.banks(ctx), grouped)

    def groups(self, bank: Bank, net: nn.Module, outputs: Mapping[str, int], batch: int) -> bool:
        """Whether a layer is computed in groups, without making its weight."""
        module, numbers = net.get_submodule(bank.module), outputs.get(bank.module, 0)
        if self.form == "compose" or not numbers or not parts.can_be_grouped(module):
            return False
        shape = tuple(module.weight.shape)  # type: ignore[arg-type]
        return self.form == "grouped" or parts.grouped_is_cheaper(bank, shape, numbers, batch)

    def names(self, level: Level, ctx: Context) -> dict[str, str]:
        """From names in a composed network of this level to those in state and payload."""
        return ctx.once(FLANC.make_names, self, level)

    def make_names(self, level: Level, ctx: Context) -> dict[str, str]:
        """The names themselves, which are made once."""
        names = {name: owned(level, name) for name in ctx.once(FLANC.network, self, level).state_dict()}
        for bank in self.banks(ctx):
            names |= dict(zip(bank.names, (shared(bank), own(bank, level)), strict=True))
        return names

    def wired(self, net: nn.Module, level: Level, ctx: Context) -> Tensors:
        """A composed network's tensors by the names that the server knows them by."""
        names = self.names(level, ctx)
        return {names[name]: tensor for name, tensor in state_of(net).items()}


def shared(bank: Bank) -> str:
    """What a basis is called in state and payload."""
    return placed("basis", bank.layer)


def own(bank: Bank, level: Level) -> str:
    """What a width's coefficients are called in state and payload."""
    return owned(level, f"{bank.layer}.coefficients")


def composed_loss(
    goal: Goal, strength: float, norm_of: parts.NormOf, net: nn.Module, batch: Batch, extra: Tensors
) -> Tensor:
    """ℓ(f(x), y) + λ Σ_l ‖V_l V_lᵀ - I‖² (FLANC, eq. 3)."""
    loss = goal(net, batch, extra)
    if not strength:
        return loss
    return loss + strength * torch.stack([parts.orthogonality(basis, norm_of) for basis in parts.bases_in(net)]).sum()
