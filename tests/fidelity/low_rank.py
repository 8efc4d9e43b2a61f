"""FedHM's round again, slowly: singular value decompositions, products, and means of these."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import by_hand
import torch
from by_hand import Batch, Recipe, Weights
from played import Played
from torch import Tensor

from potluck.core.types import Client


@dataclass
class Settings:
    """What of FedHM can be set, with the paper's values."""

    inverse_score: bool = False
    temperature: float = 1.0
    double_decay: bool = False
    keep_global: bool = True
    by_size: bool = False
    distill: float = 0.0
    distill_temperature: float = 1.0

    def weight(self, client: Client) -> float:
        """exp(s/τ), which need not sum to one: means divide by their sum."""
        ratio = client.level.ratio
        share = math.exp((-1 / ratio if self.inverse_score else ratio) / self.temperature)
        return share * client.size if self.by_size else share


def unrolled(weight: Tensor) -> Tensor:
    """Rows are (output, kernel row), columns (input, kernel column); a matrix is one already."""
    if weight.dim() == 2:
        return weight
    outputs, inputs, height, width = weight.shape
    matrix = torch.zeros(outputs * height, inputs * width, dtype=weight.dtype)
    for row in range(height):
        for column in range(width):
            matrix[row::height, column::width] = weight[:, :, row, column]
    return matrix


def rolled(matrix: Tensor, shape: torch.Size) -> Tensor:
    """The weight whose unrolled matrix this is; its gradients flow back."""
    if len(shape) == 2:
        return matrix
    _, _, height, width = shape
    rows = [
        torch.stack([matrix[row::height, column::width] for column in range(width)], dim=-1) for row in range(height)
    ]
    return torch.stack(rows, dim=-2)


def factors(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """U_r √Σ_r and √Σ_r V_rᵀ."""
    left, values, right = torch.linalg.svd(unrolled(weight), full_matrices=False)
    root = torch.diag(values[:rank].sqrt())
    return left[:, :rank] @ root, root @ right[:rank]


def ranks(state: Weights, layers: list[str], ratio: float) -> dict[str, int]:
    """round(γ · outputs) of every layer that gets smaller that way."""
    found = {}
    for name in layers:
        weight, rank = state[f"{name}.weight"], max(round(ratio * len(state[f"{name}.weight"])), 1)
        rows, columns = unrolled(weight).shape
        if ratio < 1 and rank * (rows + columns) < rows * columns:
            found[name] = rank
    return found


def multiplied(weights: Weights, shapes: dict[str, torch.Size]) -> Weights:
    """The weights of a network in factors as those of the whole network."""
    whole = {name: tensor for name, tensor in weights.items() if not name.endswith((".A", ".B"))}
    for name, shape in shapes.items():
        whole[f"{name}.weight"] = rolled(weights[f"{name}.A"] @ weights[f"{name}.B"], shape)
    return whole


@dataclass
class LowRank:
    """A network whose named layers may be in factors; `logits_of` is what it says with whole weights."""

    logits_of: object
    layers: list[str]
    recipe: Recipe
    settings: Settings

    def loss(
        self,
        client: Client,
        shapes: dict[str, torch.Size],
        teacher: Weights | None,
        weights: Weights,
        batch: Batch,
    ) -> Tensor:
        """Masked cross-entropy, λ/2 ‖A B‖² of each layer in factors, μ T² KL(received ‖ trained)."""
        whole = multiplied(weights, shapes)
        logits = self.logits_of(whole, batch[0])  # type: ignore[operator]
        loss = by_hand.cross_entropy(by_hand.masked(logits, client.labels), batch[1])
        for name in shapes:
            loss = loss + self.recipe.weight_decay / 2 * (whole[f"{name}.weight"] ** 2).sum()
        if teacher is None:
            return loss
        heat = self.settings.distill_temperature
        with torch.no_grad():
            said = self.logits_of(multiplied(teacher, shapes), batch[0])  # type: ignore[operator]
        apart = torch.zeros((), dtype=torch.float64)
        for student, knew in zip(logits / heat, said / heat, strict=True):
            p, q = knew.exp() / knew.exp().sum(), student.exp() / student.exp().sum()
            apart = apart + (p * (p / q).log()).sum()
        return loss + self.settings.distill * heat**2 * apart / len(logits)

    def next_state(self, state: Weights, played: Played) -> Weights:
        """A round; if nobody had the largest network, the server's own joins it."""
        head, sent = ("head.weight", "head.bias"), []
        for client in played.cohort:
            trained = self.trained(state, client, played)
            update = by_hand.Sent(trained, by_hand.everywhere(trained), self.settings.weight(client))
            sent.append(by_hand.only_rows(update, head, client.labels))
        largest = max(level.ratio for level in played.ctx.task.levels)
        if self.settings.keep_global and all(client.level.ratio < largest for client in played.cohort):
            size = sum(client.size for client in played.cohort) / len(played.cohort)
            stand_in = Client(-1, played.ctx.task.largest, size, ())  # type: ignore[arg-type]
            sent.append(by_hand.Sent(state, by_hand.everywhere(state), self.settings.weight(stand_in)))
        return by_hand.mean_over_holders(state, sent)

    def trained(self, state: Weights, client: Client, played: Played) -> Weights:
        """What a client makes of the factors that it is sent, multiplied out."""
        low = ranks(state, self.layers, client.level.ratio)
        shapes = {name: state[f"{name}.weight"].shape for name in low}
        received = {name: tensor for name, tensor in state.items() if name.removesuffix(".weight") not in low}
        for name, rank in low.items():
            received[f"{name}.A"], received[f"{name}.B"] = factors(state[f"{name}.weight"], rank)
        teacher = received if self.settings.distill and played.ctx.round > 0 else None
        goal = partial(self.loss, client, shapes, teacher)
        spared = [] if self.settings.double_decay else [f"{name}.{side}" for name in low for side in "AB"]
        trained = by_hand.descend(
            received, played.batches[client.id], goal, self.recipe, played.ctx.round, undecayed=spared
        )
        return multiplied(trained, shapes)
