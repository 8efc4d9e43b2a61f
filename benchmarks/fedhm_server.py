"""What FedHM's server does in a round, beside a full SVD per level and layer: figures for people, never asserted.

ResNet-18 and ten clients of four rank ratios. In a round the server decomposes its weights, hands out factors of
every rank, and multiplies out and averages what comes back. Beside it, the same with LAPACK's SVD of every layer for
every level, each product formed and then averaged. Weights are those of a network after some rounds, of
which a trace is made here: random weights plus what clients of low rank add to them in every round.

python benchmarks/fedhm_server.py
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import torch
from figures import Figure, seconds, show
from tasks import shapes_alone

from potluck.core.method import recipient
from potluck.core.names import outside
from potluck.core.random import stream
from potluck.core.types import Client, Context, Tensors, Update
from potluck.methods.fedhm import FedHM, relative_weight
from potluck.parts.lowrank.cache import KEPT
from potluck.parts.lowrank.layers import factor_names

GAMMAS = (1.0, 0.5, 0.25, 0.125, 1.0, 0.5, 0.25, 0.125, 0.5, 0.25)
ROUNDS, WARM_UP = 5, 2
STEP = 0.05  # how far clients move from what they were sent, relative to it


def clients(ctx: Context) -> list[Client]:
    """Ten clients with every label."""
    levels = {level.ratio: level for level in ctx.task.levels}
    return [replace(recipient(levels[gamma], ctx), id=number, size=500) for number, gamma in enumerate(GAMMAS)]


def trained(payload: Tensors, client: Client, round: int) -> Update:
    """What a client might send back: everything a little off, in a direction of its own."""
    rng = stream(0, "trained", client.id, round)
    moved = {
        name: tensor + STEP * tensor.std() * torch.randn(tensor.shape, generator=rng) if tensor.numel() > 1 else tensor
        for name, tensor in payload.items()
    }
    return Update(client, moved)


def ours(method: FedHM, state: Tensors, sent: list[Update], ctx: Context) -> tuple[list[Tensors], Tensors]:
    """The server's part of a round; clients' answers are at hand."""
    payloads = [method.distribute(state, update.client, ctx) for update in sent]
    return payloads, method.aggregate(state, iter(sent), ctx)


def plainly(method: FedHM, state: Tensors, sent: list[Update], ctx: Context) -> tuple[list[Tensors], Tensors]:
    """The same, one SVD per level and layer, every product formed."""
    layers, by_level = method.survey(ctx).layers, {}
    for level in ctx.task.levels:
        payload = dict(state)
        for name, rank in method.survey(ctx).ranks(level.ratio).items():
            matrix = layers[name].matrix(payload.pop(f"{name}.weight"))
            left, values, right = torch.linalg.svd(matrix, full_matrices=False)
            roots = values[..., :rank].sqrt()
            weights = layers[name].split(
                left[..., :rank] * roots[..., None, :], roots[..., None] * right[..., :rank, :]
            )
            payload |= zip(factor_names(name), weights, strict=True)
        by_level[level] = payload
    mean, total = {name: torch.zeros_like(tensor) for name, tensor in state.items()}, 0.0
    for update in sent:
        weight = relative_weight(update.client.level.ratio, 1.0, "gamma", 1.0)
        whole = dict(update.payload)
        for name in method.survey(ctx).ranks(update.client.level.ratio):
            first, second = (whole.pop(each) for each in factor_names(name))
            left, right = layers[name].join(first, second)
            whole[f"{name}.weight"] = layers[name].weight(left @ right)
        total += weight
        for name, tensor in whole.items():
            mean[name] += weight * tensor
    return [by_level[update.client.level] for update in sent], {name: tensor / total for name, tensor in mean.items()}


def worst_excess(method: FedHM, payloads: list[Tensors], state: Tensors, ctx: Context) -> float:
    """By how much the error of any layer's factors exceeds the least possible, over all clients: 0.01 is 1 %."""
    layers, worst = method.survey(ctx).layers, 0.0
    spectra = {
        name: torch.linalg.svdvals(layer.matrix(state[f"{name}.weight"]).double()) for name, layer in layers.items()
    }
    for client, payload in zip(clients(ctx), payloads, strict=True):
        for name, rank in method.survey(ctx).ranks(client.level.ratio).items():
            left, right = layers[name].join(*(payload[each].double() for each in factor_names(name)))
            error = (layers[name].matrix(state[f"{name}.weight"]).double() - left @ right).norm()
            worst = max(worst, float(error / spectra[name][..., rank:].norm()) - 1)
    return worst


def measure(title: str, method: FedHM) -> Figure:
    """Rounds of a mode side by side with the plain way, on the same weights."""
    ctx = Context(shapes_alone("resnet18", sorted(set(GAMMAS), reverse=True)), round=0, seed=0)
    state = method.init(ctx)
    timed: list[tuple[float, float]] = []
    excess, exact = 0.0, 0
    for round in range(WARM_UP + ROUNDS):
        ctx = replace(ctx, round=round)
        sent = [trained(method.distribute(state, client, ctx), client, round) for client in clients(ctx)]
        ctx.memo.newest.clear()  # what the round's clients were made from is not the server's time
        results: list[tuple[list[Tensors], Tensors]] = []
        took = seconds(lambda: results.append(ours(method, state, sent, ctx)))  # noqa: B023
        plain = seconds(lambda: plainly(method, outside(KEPT, state), sent, ctx))  # noqa: B023
        excess = max(excess, worst_excess(method, results[0][0], state, ctx))
        exact += method.diagnose(state, ctx, {})["decomposed_exactly"]
        state = results[0][1]
        if round >= WARM_UP:
            timed.append((took, plain))
    took, plain = (median(column) for column in zip(*timed, strict=True))
    ratio = median(plain / took for took, plain in timed)
    total = (WARM_UP + ROUNDS) * len(method.survey(ctx).layers)
    beside = f"{took:.2f} s, {plain:.2f} s with SVDs; error {excess:.2%} over the least; {exact} of {total} exactly"
    return Figure("FedHM's server", f"{title}, beside an SVD per level and layer", ratio, "x", beside)


def figures() -> list[Figure]:
    """Both modes; medians, since other work on the machine disturbs single figures."""
    return [measure("exact", FedHM()), measure("randomised", FedHM(svd="randomised"))]


if __name__ == "__main__":
    show(figures())
