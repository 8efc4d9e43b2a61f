"""Cutting a wide network down to a narrow one: index plans, and the mean over those who hold a scalar.

A plan says, for every tensor of the narrow network, which indices of the wide one it holds along
each dimension. Contiguous windows stay slices, so that taking them is a view and adding to them
is memory-bandwidth work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck.core.errors import ModelError
from potluck.core.tensors import restore_type
from potluck.core.types import Tensors

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Window:
    """The first `kept` of `size` channels, in each of `blocks` equal parts of a dimension."""

    size: int
    kept: int
    blocks: int = 1


@dataclass(frozen=True)
class Plan:
    """Which part of every wide tensor a narrow network holds: one window per dimension."""

    windows: Mapping[str, tuple[Window, ...]]

    @property
    def narrowed(self) -> frozenset[str]:
        """The tensors that really are smaller."""
        return frozenset(
            name for name, windows in self.windows.items() if any(window.kept < window.size for window in windows)
        )

    def part(self, name: str, wide: Tensor) -> Tensor:
        """The part of a wide tensor that is held, as a view; a dimension in blocks becomes two."""
        shape: list[int] = []
        where: list[slice] = []
        for window in self.windows[name]:
            if window.blocks > 1:
                shape.append(window.blocks)
                where.append(slice(None))
            shape.append(window.size // window.blocks)
            where.append(slice(0, window.kept // window.blocks))
        return wide.view(shape)[tuple(where)]

    def take(self, tensors: Mapping[str, Tensor]) -> Tensors:
        """The narrow tensors; those without blocks are views of the wide ones."""
        return {
            name: self.part(name, tensors[name]).reshape([window.kept for window in windows])
            for name, windows in self.windows.items()
        }


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def prefix_plan(wide: Shapes, narrow: Shapes, blocks: Mapping[str, tuple[int, ...]] | None = None) -> Plan:
    """W_narrow = W[:d, :k] (HeteroFL, sec. 2.1): the first channels of every dimension, or of each of its blocks.

    >>> plan = prefix_plan({"w": (4, 3)}, {"w": (2, 3)}, {"w": (2, 1)})
    >>> plan.take({"w": torch.arange(12).view(4, 3)})["w"].tolist()
    [[0, 1, 2], [6, 7, 8]]
    """
    if set(wide) != set(narrow):
        raise ModelError(
            "the network has other parameters at another width: "
            f"{sorted(set(wide) ^ set(narrow))} exist at one width only; make its layers the same at every width"
        )
    windows = {}
    for name, shape in narrow.items():
        parts = (blocks or {}).get(name, (1,) * len(shape))
        if len(shape) != len(wide[name]) or any(n > w for n, w in zip(shape, wide[name], strict=True)):
            raise ModelError(
                f"'{name}' has shape {shape} in the narrow network: no part of the wide one's {wide[name]}"
            )
        windows[name] = tuple(Window(*sizes) for sizes in zip(wide[name], shape, parts, strict=True))
        for window in windows[name]:
            if window.size % window.blocks or window.kept % window.blocks:
                raise ModelError(
                    f"'{name}' has {window.size} channels in {window.blocks} blocks (heads, gates), of which "
                    f"{window.kept} cannot be kept evenly; choose widths that leave every block the same number"
                )
    return Plan(windows)


class HolderMean:
    """For every scalar the weighted mean over the clients that hold it, as updates stream in.

    Sums are float64: equal contributions give back their value exactly. A scalar that nobody
    held keeps the value it had.
    """

    def __init__(self, state: Tensors) -> None:
        self.state = state
        self.total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in state.items()}
        self.weight = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in state.items()}

    def add(self, tensors: Tensors, plan: Plan, weight: float = 1.0, rows: Mapping[str, Tensor] | None = None) -> None:
        """Count one client in; of the tensors named in `rows`, only with these rows."""
        for name, tensor in tensors.items():
            total, share = plan.part(name, self.total[name]), plan.part(name, self.weight[name])
            sent = tensor.reshape(total.shape)
            if rows and name in rows:
                held = rows[name]
                total.index_add_(0, held, sent[held].double(), alpha=weight)
                share.index_add_(0, held, torch.ones_like(sent[held], dtype=torch.float64), alpha=weight)
            else:
                total.add_(sent, alpha=weight)
                share.add_(weight)

    def result(self) -> Tensors:
        """The mean where there is one, the old value elsewhere."""
        return {
            name: torch.where(
                self.weight[name] > 0,
                restore_type(self.total[name] / self.weight[name].clamp_min(torch.finfo(torch.float64).tiny), old),
                old,
            )
            for name, old in self.state.items()
        }
