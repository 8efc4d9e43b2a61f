"""FedHM: a client trains the global network in factors of low rank, as low as its level asks for.

Yao, Pan, Dai, Wan, Ding, Jin, Xu, Sun: FedHM: Efficient Federated Learning for Heterogeneous Models via Low-rank
Factorization (arXiv 2111.14655, "v1"; journal version in Artificial Intelligence, 2025).

The server's network is whole. A client of ratio γ is sent the first layers whole and of each later one two
factors of rank γ · out, from the singular value decomposition of its weight. What comes back is multiplied
out, so networks of every rank are averaged in one shape, larger ones with more weight.

Departures:
- Eq. 1 of v1 divides weights that sum to one by the number of clients once more, which would shrink the
  network; the journal and the code do not, nor is it done here.
- The score in the softmax is γ and τ is 1, as in the journal; the authors' code has -1/γ, and uniform weights
  in a fixed fleet. `score` and `temperature` give those.
- Factors have Frobenius decay in the place of weight decay, as the paper says; the authors' code has both,
  which is `double_decay`.
- The rows of the classifier are averaged over the clients that have their class, each row with weights that
  sum to one; in the authors' code they do not, and rows shrink.
- A client that lacks classes has no say in their rows, also with the whole network.
- Batch-norm statistics are measured by the clients, as in HeteroFL; the authors score with those of the batch.
- A layer that factors would not make smaller stays whole at that level. A level below 1 at which all do is refused.
- 1x1 convolutions stay whole only beside a larger one that reads the same input, as shortcuts do: elsewhere they may be
  most of a network. The papers' networks have no others.
- Weights of grouped convolutions, if asked for, are decomposed group by group.
- `share` chooses ranks from the spectra for a budget; the authors left the choice of ρ open.
- A network starts from the weights that it is made with. `resnet18` and `resnet34` draw theirs as the authors do, from
  N(0, 2/n), to which the paper's learning rate of 0.1 belongs; PyTorch's own start, which other networks have unless
  they say otherwise, is 2.4 times smaller: under batch norm the same rate then moves weights 2.4² times as far for
  their size.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn

from potluck.core.errors import ConfigError
from potluck.core.goals.goal import Goal
from potluck.core.method import Method, recipient
from potluck.core.names import outside, placed, under
from potluck.core.tensors import copied, load, state_of
from potluck.core.types import Client, Context, Job, Level, Phase, Tensors, Update
from potluck.parts.batchnorm import forget_statistics, statistic_names
from potluck.parts.cut.mean import HolderMean
from potluck.parts.labels import Masking, classes_left_out, fill_of, label_mask, label_rows
from potluck.parts.lowrank.budget import WHOLE, Share, fitted_ranks, measured_prices
from potluck.parts.lowrank.cache import KEPT, decompositions, exactly, randomised, subspaces
from potluck.parts.lowrank.decompose import Decomposition
from potluck.parts.lowrank.diagnosis import diagnosis
from potluck.parts.lowrank.layers import Unrolled, bias_name, factor_names, replace_layers
from potluck.parts.lowrank.loss import TEACHER, HybridLoss
from potluck.parts.lowrank.mean import ProductMean
from potluck.parts.lowrank.savings import require_savings
from potluck.parts.lowrank.survey import Survey, survey

Score = Literal["gamma", "-1/gamma"]


@dataclass(frozen=True)
class FedHM(Method):
    """Each client trains the network in factors of low rank; their products are averaged in one shape."""

    paper: ClassVar[str] = "Yao et al.: FedHM (arXiv 2111.14655)"
    lossless: ClassVar[bool] = False  # what a low rank cannot hold is lost on the way
    ratio_is_width: ClassVar[bool] = False

    rho: Annotated[int, Ge(1)] | str | None = None  # layers whole at the front, or where factors begin
    factor: tuple[str, ...] = ()  # layers or blocks in factors that would be left whole
    whole: tuple[str, ...] = ()  # layers or blocks left whole that would be in factors
    share: Share = "rank"  # what a level's ratio is a share of; if not of the rank, ranks are chosen to fit
    decay: Annotated[float, Ge(0)] | None = None  # λ of Frobenius decay; the weight decay if not given
    double_decay: bool = False  # factors have weight decay as well, as in the authors' code
    score: Score = "gamma"
    temperature: Annotated[float, Gt(0)] = 1.0  # τ; inf gives every client the same weight
    by_size: bool = False  # weights are multiplied by the number of a client's examples
    keep_global: bool = True  # the global network joins a round in which nobody had the largest network
    svd: Literal["exact", "randomised"] = "exact"
    svd_error: Annotated[float, Gt(0)] = 0.01  # of a randomised decomposition, beyond the least possible
    static_norm: bool = True  # no batch-norm statistics in training; clients measure them for exported models
    masking: Masking = "zero"  # what becomes of the logits of classes a client lacks
    self_distill: Annotated[float, Ge(0)] = 0.0  # weight of what the received network says, from the second round on
    distill_temperature: Annotated[float, Gt(0)] = 1.0

    @property
    def calibrated(self) -> bool:
        return self.static_norm

    def leaves_out(self, goal: Goal) -> Sequence[str]:
        if self.self_distill and not goal.softmax:
            raise ConfigError(
                f"self_distill compares probabilities of classes, and the task '{goal.name}' has none; set it to 0"
            )
        return classes_left_out(self.masking, goal, by_row=True)

    def admits(self, level: Level, ctx: Context) -> bool:
        return True

    def trains(self, level: Level, ctx: Context) -> Level:
        return WHOLE

    # ---- on the server ----

    def init(self, ctx: Context) -> Tensors:
        if self.share != "rank" and self.svd != "exact":
            raise ConfigError(f"[method] share is '{self.share}', which needs all singular values: let svd be 'exact'")
        require_savings(self.survey(ctx), ctx.task.levels, by_rank=self.share == "rank")
        state = state_of(self.network({}, ctx))
        state |= {norms_name(name): torch.zeros(2) for name in self.layers(ctx)}
        if self.share == "seconds":
            state |= measured_prices(self.network({}, ctx), self.survey(ctx), ctx)
        if self.svd == "randomised":
            state |= subspaces(self.decomposed(state, self.layers(ctx), ctx), self.level_ranks(ctx))
        return state

    def distribute(self, state: Tensors, client: Client, ctx: Context) -> Tensors:
        """A = U_r √Σ_r and B = √Σ_r V_rᵀ of every layer in factors (spectral initialisation, sec. 3.3)."""
        ranks, layers = self.ranks(client.level, state, ctx), self.survey(ctx).layers
        payload = outside(KEPT, state)
        for name, found in self.decomposed(state, ranks, ctx).items():
            if ranks[name] > found.values.shape[-1]:  # randomised, and for smaller ranks: those of the levels
                found = exactly(name, layers[name].matrix(state[f"{name}.weight"]))
            weights = factors_of(found, layers[name], ranks[name], (name, client.level), ctx)
            payload |= zip(factor_names(name), weights, strict=True)
            del payload[f"{name}.weight"]
            if bias_name(name) in payload:
                payload[bias_name(name, factorised=True)] = payload.pop(bias_name(name))
        return payload

    def aggregate(self, state: Tensors, updates: Iterable[Update], ctx: Context) -> Tensors:
        """w = Σ_p α_p w_p, of factors their product (eq. 1, 2); the classifier's rows over who has their class."""
        layers, largest = self.layers(ctx), ctx.task.largest
        products, others = ProductMean(layers, state), HolderMean(state)
        came: list[Client] = []
        for update in updates:
            client = update.client
            weight = relative_weight(client.level.ratio, largest.ratio, self.score, self.temperature)
            weight *= client.size if self.by_size else 1
            products.add(update.payload, weight)
            rows = label_rows(client, ctx) if self.masking != "off" else None
            others.add(unfactored(update.payload, layers), weight, rows=rows)
            came.append(client)
        if not came:
            return state
        if self.keep_global and largest.ratio not in {client.level.ratio for client in came}:
            weight = sum(client.size for client in came) / len(came) if self.by_size else 1.0
            products.add(state, weight)
            others.add(unfactored(outside(KEPT, state), layers), weight)
        norms = {norms_name(name): norms for name, norms in products.norms.items()}
        new = {**others.result(), **products.result(), **norms}
        if self.svd == "randomised":
            new |= subspaces(self.decomposed(state, layers, ctx), self.level_ranks(ctx))
        return new

    def export(self, state: Tensors, level: Level, ctx: Context) -> nn.Module:
        net = replace_layers(ctx.build(WHOLE), self.ranks(level, state, ctx))
        sent = self.distribute(state, recipient(level, ctx), ctx)
        load(net, sent, optional=statistic_names(net) if self.static_norm else [])  # clients are yet to measure them
        return net.eval()

    def diagnose(self, state: Tensors, ctx: Context, joined: Mapping[str, int]) -> dict[str, Any]:
        layers = self.layers(ctx)
        if not layers:
            return {}
        ranks = {level.name: self.ranks(level, state, ctx) for level in ctx.task.levels}
        found = diagnosis(self.decomposed(state, layers, ctx), layers, ranks, joined)
        trained = {name: state[norms_name(name)].tolist() for name in layers}
        norms = {side: {name: pair[at] for name, pair in trained.items()} for at, side in enumerate("UV")}
        return {**found, "factor_norms": norms, "kappa_uv": max(max(pair) for pair in trained.values())}

    def explain(self, level: Level, ctx: Context) -> dict[str, str]:
        found = self.survey(ctx)
        ranks = self.ranks(level, {} if self.share == "rank" else self.init(ctx), ctx)
        no_gain = (
            "whole: factors of this rank would be no smaller" if level.ratio < WHOLE.ratio else "whole: the ratio is 1"
        )
        told = {name: f"factors of rank {ranks[name]}" if name in ranks else no_gain for name in found.layers}
        return {**told, **{name: f"whole: {reason}" for name, reason in found.whole.items()}}

    # ---- on the client ----

    def localize(self, job: Job, ctx: Context, personal: Tensors) -> nn.Module:
        ranks = self.ranks_in(job.payload, ctx)
        where = (FedHM.network, self, job.client.level)
        net = ctx.memo.latest(where, (*ranks, *ranks.values()), lambda: self.network(ranks, ctx))
        load(net, job.payload)
        return net

    def phases(self, job: Job, ctx: Context, personal: Tensors) -> Sequence[Phase]:
        ranks = self.ranks_in(job.payload, ctx)
        layers = tuple((name, self.survey(ctx).layers[name]) for name in ranks)
        decay = ctx.task.train.weight_decay if self.decay is None else self.decay
        fill = fill_of(self.masking, ctx.task.goal)
        loss = HybridLoss(ctx.task.goal, fill, decay, layers, self.self_distill, self.distill_temperature)
        extra = {} if fill is None else {"mask": label_mask(job.client, ctx.task.classes)}
        if self.self_distill and job.round:
            extra |= under(TEACHER, copied(job.payload))
        spared = set() if self.double_decay else {each for name in ranks for each in factor_names(name)}
        return [Phase(loss, extra, decays=lambda name: name not in spared)]

    # ---- which layers, which ranks ----

    def network(self, ranks: Mapping[str, int], ctx: Context) -> nn.Module:
        """The network as clients train it, with factors of these ranks."""
        net = replace_layers(ctx.build(WHOLE), ranks)
        return forget_statistics(net) if self.static_norm else net

    def survey(self, ctx: Context) -> Survey:
        """Which layers can be in factors, and why the others cannot."""
        return ctx.once(FedHM.look, self)

    def look(self, ctx: Context) -> Survey:
        """Run the network once to see."""
        start = 1 if self.rho is None and self.share != "rank" else self.rho  # the budget decides where they begin
        head = ctx.task.head(WHOLE)
        return survey(ctx.build(WHOLE), ctx.task.example[0], head, start, self.factor, self.whole)

    def layers(self, ctx: Context) -> dict[str, Unrolled]:
        """The layers that are in factors at some level."""
        used = set().union(*(self.possible(level, ctx) for level in ctx.task.levels))
        return {name: layer for name, layer in self.survey(ctx).layers.items() if name in used}

    def possible(self, level: Level, ctx: Context) -> Iterable[str]:
        """The layers that may be in factors at a level."""
        if self.share == "rank" or level.ratio == WHOLE.ratio:
            return self.survey(ctx).ranks(level.ratio)
        return self.survey(ctx).layers

    def ranks(self, level: Level, state: Tensors, ctx: Context) -> dict[str, int]:
        """The rank of every layer in factors at a level: by its ratio, or by what loses least energy for its budget."""
        if self.share == "rank" or level.ratio == WHOLE.ratio:
            return self.survey(ctx).ranks(level.ratio)
        decomposed = self.decomposed(state, self.survey(ctx).layers, ctx)
        return fitted_ranks(self.share, level, decomposed, state, self.survey(ctx), ctx).ranks

    def level_ranks(self, ctx: Context) -> dict[str, list[int]]:
        """Of every layer in factors the ranks that levels ask for."""
        tables = [self.survey(ctx).ranks(level.ratio) for level in ctx.task.levels]
        return {name: [ranks[name] for ranks in tables if name in ranks] for name in self.layers(ctx)}

    def ranks_in(self, payload: Tensors, ctx: Context) -> dict[str, int]:
        """The ranks of what a client was sent."""
        seconds = {name: factor_names(name)[1] for name in self.survey(ctx).layers}
        return {name: payload[second].shape[1] for name, second in seconds.items() if second in payload}

    def decomposed(self, state: Tensors, names: Iterable[str], ctx: Context) -> dict[str, Decomposition]:
        """The decompositions of layers' weights; each is made once for all levels."""
        ranks = self.level_ranks(ctx) if self.svd == "randomised" else {}
        make = randomised(state, ranks, self.svd_error, ctx.seed) if ranks else exactly
        return decompositions(state, self.survey(ctx).layers, names, make, ctx)


def relative_weight(gamma: float, largest: float, score: Score, temperature: float) -> float:
    """exp(s(γ) / τ) (eq. 2), as a multiple of the largest network's; s is γ, or -1/γ as in the authors' code."""
    scores = (gamma, largest) if score == "gamma" else (-1 / gamma, -1 / largest)
    return math.exp((scores[0] - scores[1]) / temperature)


def factors_of(found: Decomposition, layer: Unrolled, rank: int, key: Hashable, ctx: Context) -> tuple[Tensor, Tensor]:
    """The weights of a layer's factors; clients of one level are sent the same."""
    return ctx.memo.latest((factors_of, key), (found, rank), lambda: layer.split(*found.factors(rank)))


def norms_name(layer: str) -> str:
    """What the largest norms of a layer's factors are called that clients sent in the last round."""
    return placed(KEPT, f"norms/{layer}")


def unfactored(tensors: Mapping[str, Tensor], layers: Iterable[str]) -> Tensors:
    """What is not the weight of a layer in factors, by the names of the whole network."""
    weights = {each for name in layers for each in (f"{name}.weight", *factor_names(name))}
    names = {bias_name(name, factorised=True): bias_name(name) for name in layers}
    return {names.get(name, name): tensor for name, tensor in tensors.items() if name not in weights}
