"""Twelve small networks as their users write them, each with something that has been in the way of some method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outputs import Output
from potluck.core.data import Arrays
from potluck.core.random import seeded, stream
from potluck.data.dataset import Dataset

CLASSES, VOCABULARY, LENGTH = 3, 12, 6
TRAIN, TEST = 32, 12


class Residual(nn.Module):
    """A block with a 1x1 shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.conv1, self.norm1 = nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32)
        self.conv2, self.norm2 = nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.shortcut = nn.Conv2d(16, 32, 1, stride=2, bias=False)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(images)), inplace=True)
        y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        logits: Tensor = self.head((y + self.shortcut(x)).relu().mean((2, 3)))
        return logits


class Point(nn.Conv2d):
    """A 1x1 convolution with its author's first weights."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 1, bias=False)

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, mode="fan_out")


class Depthwise(nn.Module):
    """An inverted residual: the only kernels that mix channels are 1x1, and of a class of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
        self.block = nn.Sequential(
            *(Point(16, 64), nn.BatchNorm2d(64), nn.ReLU6()),
            *(nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False), nn.BatchNorm2d(64), nn.ReLU6()),
            *(Point(64, 16), nn.BatchNorm2d(16)),
        )
        self.head = nn.Linear(16, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        logits: Tensor = self.head((x + self.block(x)).mean((2, 3)))
        return logits


class FeedForward(nn.Sequential):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features))


class RotaryAttention(nn.Module):
    """Frequencies and a mask are buffers that are in no state."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, features // heads
        self.qkv, self.out = nn.Linear(features, 3 * features), nn.Linear(features, features)
        rates = 1.0 / (100.0 ** (torch.arange(0, self.head_dim, 2).float() / self.head_dim))
        self.register_buffer("inv_freq", rates, persistent=False)
        self.register_buffer("mask", torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(), persistent=False)

    def turned(self, x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(x.shape[-2]).float(), self.inv_freq)
        cos, sin = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()
        one, other = x.chunk(2, -1)
        return x * cos + torch.cat((-other, one), -1) * sin

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        scores = self.turned(q) @ self.turned(k).transpose(-2, -1) * self.head_dim**-0.5
        seen = scores.masked_fill(~self.mask, float("-inf")).softmax(-1) @ v
        mixed: Tensor = self.out(seen.transpose(1, 2).flatten(2))
        return mixed


class Rotary(nn.Module):
    """Attention with rotary positions; the order in which positions are averaged is an index buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.norm1, self.attention = nn.LayerNorm(32), RotaryAttention(32, heads=2)
        self.norm2, self.feed = nn.LayerNorm(32), FeedForward(32, 64)
        self.register_buffer("order", torch.arange(LENGTH).flip(0), persistent=False)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        x = x + self.attention(self.norm1(x))
        x = x + self.feed(self.norm2(x))
        logits: Tensor = self.head(x[:, self.order].mean(1))
        return logits


class WithOutput(nn.Module):
    """Returns an output object with hidden states beside the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(VOCABULARY, 32), nn.LayerNorm(32)
        self.feed, self.classifier = FeedForward(32, 64), nn.Linear(32, CLASSES)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Output:
        hidden = self.embed(input_ids)
        mixed = hidden + self.feed(self.norm(hidden))
        return Output(loss=None, logits=self.classifier(mixed.mean(1)), hidden_states=(hidden, mixed))


class Tied(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(VOCABULARY, 32), nn.LayerNorm(32)
        self.mix, self.feed = nn.Linear(LENGTH, LENGTH), FeedForward(32, 64)
        self.head = nn.Linear(32, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        x = x + self.mix(x.transpose(1, 2)).transpose(1, 2)
        logits: Tensor = self.head(self.norm(x + self.feed(x)))
        return logits


class Gated(nn.Module):
    """Gated linear units: value and gate come out of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.wide, self.back = nn.Linear(10, 32), nn.Linear(32, 128), nn.Linear(64, 32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, rows: Tensor) -> Tensor:
        x = self.first(rows).relu()
        logits: Tensor = self.head(x + self.back(F.glu(self.wide(x), -1)))
        return logits


class SqueezeExcite(nn.Module):
    """Channels weighed by what they have on average."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.squeeze, self.excite = nn.Conv2d(32, 8, 1), nn.Conv2d(8, 32, 1)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.norm(self.conv2(self.conv1(images).relu())).relu()
        weights = self.excite(self.squeeze(x.mean((2, 3), keepdim=True)).relu()).sigmoid()
        logits: Tensor = self.head((x * weights).mean((2, 3)))
        return logits


class Recurrent(nn.Module):
    """An LSTM between an embedding and the head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(VOCABULARY, 16), nn.LSTM(16, 32, batch_first=True)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.lstm(self.embed(tokens))[0][:, -1])
        return logits


class ConvNeXt(nn.Module):
    """Depthwise, a norm with channels last, a wide pair of layers, a learned scale."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.deep = nn.Conv2d(3, 16, 2, stride=2), nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.norm, self.feed = nn.LayerNorm(16), FeedForward(16, 64)
        self.gamma = nn.Parameter(0.1 * torch.ones(16))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images)
        y = self.gamma * self.feed(self.norm(self.deep(x).permute(0, 2, 3, 1)))
        logits: Tensor = self.head((x + y.permute(0, 3, 1, 2)).mean((2, 3)))
        return logits


class VisionTransformer(nn.Module):
    """PyTorch's own encoder layer on patches and a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, stride=4)
        self.token, self.positions = nn.Parameter(torch.zeros(1, 1, 32)), nn.Parameter(0.1 * torch.randn(1, 5, 32))
        self.encoder = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.positions
        logits: Tensor = self.head(self.norm(self.encoder(x))[:, 0])
        return logits


class Mixer(nn.Module):
    """One perceptron across patches, one across channels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 2, stride=2)
        self.norm1, self.across = nn.LayerNorm(32), FeedForward(16, 32)
        self.norm2, self.feed = nn.LayerNorm(32), FeedForward(32, 64)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        logits: Tensor = self.head((x + self.feed(self.norm2(x))).mean(1))
        return logits


class Positions(nn.Module):
    """Gives a view of its parameter away."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(2 * LENGTH, features))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.weight[: tokens.shape[1]].unsqueeze(0)


class ParameterView(nn.Module):
    """Learned positions that a submodule hands out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(VOCABULARY, 32), Positions(32)
        self.first, self.feed, self.head = nn.Linear(32, 32), FeedForward(32, 64), nn.Linear(32, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.first(self.embed(tokens) + self.positions(tokens)).relu()
        logits: Tensor = self.head((x + self.feed(x)).mean(1))
        return logits


@dataclass(frozen=True)
class Case:
    """A network and data for it."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    text: bool = False  # a token is predicted at every position

    def build(self) -> nn.Module:
        with seeded(0, "small networks"):
            return self.make()

    def data(self) -> Dataset:
        """Examples whose classes are as many each; made up, there is nothing to learn."""
        inputs = self.inputs(TRAIN + TEST)
        targets = inputs.roll(-1, 1) if self.text else torch.arange(len(inputs)) % CLASSES
        train, test = Arrays(inputs[:TRAIN], targets[:TRAIN]), Arrays(inputs[TRAIN:], targets[TRAIN:])
        return Dataset(train, test, VOCABULARY, "next-token") if self.text else Dataset(train, test, CLASSES)


def images(count: int) -> Tensor:
    return torch.randn(count, 3, 8, 8, generator=stream(0, "images"))


def rows(count: int) -> Tensor:
    return torch.randn(count, 10, generator=stream(0, "rows"))


def tokens(count: int) -> Tensor:
    return torch.randint(VOCABULARY, (count, LENGTH), generator=stream(0, "tokens"))


CASES: dict[str, Case] = {
    "residual": Case(Residual, images),
    "depthwise": Case(Depthwise, images),
    "rotary": Case(Rotary, tokens),
    "output object": Case(WithOutput, tokens),
    "tied": Case(Tied, tokens, text=True),
    "gated": Case(Gated, rows),
    "squeeze-excite": Case(SqueezeExcite, images),
    "lstm": Case(Recurrent, tokens),
    "convnext": Case(ConvNeXt, images),
    "vit": Case(VisionTransformer, images),
    "mixer": Case(Mixer, images),
    "parameter view": Case(ParameterView, tokens),
}
