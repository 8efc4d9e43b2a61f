"""Layers written with bare parameters: matrix products, einsum, a mixture of experts."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RawMLP(nn.Module):
    """x @ W + b, all by hand, with a scale and a shift per channel."""

    def __init__(self, n_in: int, n_hidden: int, n_out: int) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(n_in, n_hidden) / n_in**0.5)
        self.b1 = nn.Parameter(torch.zeros(n_hidden))
        self.scale = nn.Parameter(torch.ones(1, n_hidden))
        self.w2 = nn.Parameter(torch.randn(n_hidden, n_hidden) / n_hidden**0.5)
        self.b2 = nn.Parameter(torch.zeros(n_hidden))
        self.w3 = nn.Parameter(torch.randn(n_out, n_hidden) / n_hidden**0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(x @ self.w1 + self.b1) * self.scale
        h = torch.relu(torch.addmm(self.b2, h, self.w2)) + h
        return torch.einsum("bh,oh->bo", h, self.w3)


class Experts(nn.Module):
    """Every token is a blend of experts' outputs; the experts are one parameter of three dimensions."""

    def __init__(self, dim: int, hidden: int, n_experts: int, n_in: int, n_out: int) -> None:
        super().__init__()
        self.embed = nn.Linear(n_in, dim)
        self.gate = nn.Linear(dim, n_experts)
        self.up = nn.Parameter(torch.randn(n_experts, dim, hidden) / dim**0.5)
        self.down = nn.Parameter(torch.randn(n_experts, hidden, dim) / hidden**0.5)
        self.head = nn.Linear(dim, n_out)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        weights = torch.softmax(self.gate(x), dim=-1)
        h = torch.nn.functional.silu(torch.einsum("btd,edh->bteh", x, self.up))
        y = torch.einsum("bteh,ehd->bted", h, self.down)
        x = x + torch.einsum("bted,bte->btd", y, weights)
        return self.head(x.mean(1))


def raw_mlp(width: float = 1.0) -> RawMLP:
    return RawMLP(20, int(64 * width), 6)


def experts(width: float = 1.0) -> Experts:
    return Experts(int(32 * width), int(64 * width), n_experts=4, n_in=12, n_out=5)
