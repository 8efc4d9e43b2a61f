"""Small tasks of every kind, each with a network that can learn it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Learnable:
    """A network, what it learns from, and how `potluck.run` is told."""

    net: Callable[[], nn.Module]
    data: Any
    told: dict[str, Any] = field(default_factory=dict)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, outputs),
    )


def friedman() -> Learnable:
    """Friedman's first function of ten columns, five of which tell nothing; two numbers, one twice the other's size."""
    x = drawn(1500, 10)
    y = 10 * (math.pi * x[:, 0] * x[:, 1]).sin() + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    y = (y - y.mean()) / y.std()
    return Learnable(lambda: mlp(10, 2), (x, torch.stack([y, 2 * y], 1)), {"task": "regression"})


def inside() -> Learnable:
    """Whether a point lies inside a ball: one logit."""
    x = 2 * drawn(1500, 6) - 1
    return Learnable(lambda: mlp(6, 1), (x, (x.square().sum(1) < 2).long()), {"task": "binary", "metrics": ["auroc"]})


def signs() -> Learnable:
    """Which of four numbers, each a sum of some columns, are above zero."""
    x = 2 * drawn(1500, 8) - 1
    mixed = x @ (2 * drawn(8, 4, seed=1) - 1)
    return Learnable(lambda: mlp(8, 4), (x, (mixed > 0).long()), {"task": "multi-label", "rounds": 4})


class UNet(nn.Module):
    """Down, up, and a connection past both."""

    def __init__(self, width: int = 16, classes: int = 3) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.down = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU())
        self.bottom = nn.Sequential(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.leave = nn.Sequential(nn.Conv2d(2 * width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, classes, 1))

    def forward(self, images: Tensor) -> Tensor:
        entered = self.enter(images)
        risen = self.up(self.bottom(self.down(entered)))
        found: Tensor = self.leave(torch.cat([entered, risen], 1))
        return found


def shapes() -> Learnable:
    """A filled square and a hollow one on noise: of every pixel, which of both it belongs to, if any."""
    count, size = 240, 16
    images, labels = 0.5 * drawn(count, 1, size, size), torch.zeros(count, size, size, dtype=torch.long)
    places = (drawn(count, 4, seed=1) * (size - 7)).long().tolist()
    for number, (top, left, other_top, other_left) in enumerate(places):
        images[number, 0, top : top + 6, left : left + 6] += 1
        labels[number, top : top + 6, left : left + 6] = 1
        for dim, at in ((0, other_top), (0, other_top + 5), (1, other_left), (1, other_left + 5)):
            line = torch.zeros(size, size, dtype=torch.bool)
            line[other_top : other_top + 6, other_left : other_left + 6] = True
            kept = torch.zeros_like(line)
            kept.select(dim, at)[:] = True
            images[number, 0][line & kept] += 1
            labels[number][line & kept] = 2
    return Learnable(UNet, (images, labels), {"task": "pixels", "metrics": ["iou"], "rounds": 7})


class Pair(nn.Module):
    """Two inputs by name, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 64), nn.Linear(8, 64)
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.mean, self.spread = nn.Linear(64, 1), nn.Linear(64, 1)

    def forward(self, one: Tensor, other: Tensor) -> dict[str, Tensor]:
        mixed = self.body(self.one(one) + self.other(other))
        return {"mean": self.mean(mixed)[:, 0], "log_variance": self.spread(mixed)[:, 0]}


def likelihood(outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
    """The negative log-likelihood of a normal distribution whose variance is learned, too."""
    variance = outputs["log_variance"].clamp(-5, 5)
    return (variance + (targets - outputs["mean"]).square() / variance.exp()).mean() / 2


def explained(outputs: dict[str, Tensor], targets: Tensor) -> Tensor:
    return 1 - (targets - outputs["mean"]).square().mean() / targets.var(correction=0)


def difference() -> Learnable:
    """What the sums of two inputs differ by, one of them halved: by a loss of one's own with two outputs."""
    one, other = 2 * drawn(1500, 8) - 1, 2 * drawn(1500, 8, seed=1) - 1
    y = one.sum(1) - 0.5 * other.sum(1)
    data = ({"one": one, "other": other}, y + 0.1 * torch.randn(1500, generator=torch.Generator().manual_seed(2)))
    return Learnable(Pair, data, {"loss": likelihood, "metrics": {"explained": explained}, "rounds": 5})


class Reader(nn.Module):
    """A text of any length to one of its topics, or to the token after each of its tokens."""

    def __init__(self, words: int, outputs: int, every: bool) -> None:
        super().__init__()
        self.embed, self.every = nn.Embedding(words, 32), every
        self.mix = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.out = nn.Linear(64, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.embed(tokens)
        before = embedded.roll(1, 1)
        mixed: Tensor = self.out(self.mix(torch.cat([embedded, before], -1)))
        return mixed if self.every else mixed.mean(1)


def counting() -> Learnable:
    """The next token is the sum of the last two."""
    text = [drawn(300, seed=3).mul(7).long(), drawn(300, seed=4).mul(7).long()]
    for _ in range(11):
        text.append((text[-1] + text[-2]) % 7)
    tokens = torch.stack(text, 1)
    return Learnable(lambda: Reader(7, 7, every=True), (tokens[:, :-1], tokens[:, 1:]), {"task": "next-token"})


def hidden() -> Learnable:
    """Tokens count up and some are hidden: a hidden one follows from the one before it, unless that is hidden, too."""
    tokens = drawn(400, 1, seed=5).mul(6).long().expand(400, 10).clone()
    tokens = (tokens + torch.arange(10)) % 6
    masked = drawn(400, 10, seed=6) < 0.25
    masked[:, 0] = False
    inputs, targets = tokens.masked_fill(masked, 6), tokens.masked_fill(~masked, -100)
    return Learnable(lambda: Reader(7, 6, every=True), (inputs, targets), {"task": "masked-tokens"})


TASKS = {
    "regression": friedman,
    "binary": inside,
    "multi-label": signs,
    "pixels": shapes,
    "own loss": difference,
    "next-token": counting,
    "masked-tokens": hidden,
}
