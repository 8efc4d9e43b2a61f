"""Updates of clients that were trained at once: one tensor for all of them, a client per row.

Every update still is a dictionary of its own tensors, which are views of its row. Who knows more (the guard, a mean)
takes all rows at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import Generic, TypeVar

import torch
from torch import Tensor

from potluck.core.form import Form, Spec, form_of
from potluck.core.tensors import ALIGNMENT, is_whole, mean_type
from potluck.core.threads import one_thread
from potluck.core.types import Tensors

About = TypeVar("About")


@dataclass(frozen=True, eq=False)
class Stack:
    """The tensors of several clients, a client per row."""

    tensors: Tensors

    @cached_property
    def form(self) -> Form:
        """What every client's tensors look like."""
        return {name: Spec(tensor.shape[1:], tensor.dtype) for name, tensor in self.tensors.items()}

    @cached_property
    def norms(self) -> list[float]:
        """The L2 norm of every client's tensors; infinite or not a number where a scalar is, or squares overflow."""
        with one_thread():
            norms = [torch.linalg.vector_norm(as_table(as_floats(tensor)), dim=1) for tensor in self.tensors.values()]
            found: list[float] = torch.stack([each.double() for each in norms]).norm(dim=0).tolist()
        return found


class Row(dict[str, Tensor]):
    """One client's tensors in a stack."""

    def __init__(self, stack: Stack, number: int, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors)
        self.stack, self.number = stack, number

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        raise TypeError("an update is as its client sent it: make a copy, dict(update.payload), and change that")


def rows_of(tensors: Tensors) -> list[Row]:
    """The tensors of each client, of tensors with a client per row."""
    stack, apart = Stack(tensors), [tensor.unbind() for tensor in tensors.values()]
    return [Row(stack, at, dict(zip(tensors, row, strict=True))) for at, row in enumerate(zip(*apart, strict=True))]


def stacked(payloads: Sequence[Tensors]) -> list[Tensors]:
    """The payloads of clients that were trained at once; those that look like the first are rows of a stack.

    An engine that runs clients elsewhere lays the rows out there; this is what it must come to.
    """
    form: Form = next((form_of(payload) for payload in payloads if payload), {})
    fit = [bool(payload) and form_of(payload) == form for payload in payloads]
    alike = list(compress(payloads, fit))
    room = {
        name: in_rows(torch.empty(len(alike), row_length(spec), dtype=spec.dtype), spec) for name, spec in form.items()
    }
    for number, payload in enumerate(alike):
        for name, tensor in payload.items():
            room[name][number].copy_(tensor)
    rows = iter(rows_of(room))
    return [next(rows) if fits else payload for payload, fits in zip(payloads, fit, strict=True)]


def row_length(spec: Spec) -> int:
    """How many scalars apart rows begin, so that every one begins at an aligned address.

    >>> row_length(Spec(torch.Size([3, 3]), torch.float32)), row_length(Spec(torch.Size([]), torch.int64))
    (16, 8)
    """
    return -(-spec.shape.numel() * spec.dtype.itemsize // ALIGNMENT) * ALIGNMENT // spec.dtype.itemsize


def in_rows(table: Tensor, spec: Spec) -> Tensor:
    """Tensors of a kind, one in the beginning of each row of a table."""
    return table[:, : spec.shape.numel()].view(len(table), *spec.shape)


def as_floats(tensor: Tensor) -> Tensor:
    """Numbers that a norm can be taken of."""
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor if tensor.is_floating_point() else tensor.double()


def as_table(values: Tensor) -> Tensor:
    """One row per client, whatever the shape of its tensor."""
    return values.reshape(len(values), values[0].numel())


def mean_of_rows(values: Tensor, weights: Tensor) -> Tensor:
    """Σ_k n_k w_k / Σ_k n_k over the first dimension; where all w_k that count are equal, it is their value exactly.

    There is a weight for every client, or for every client and row of its tensor; a column of zeros has no mean. Whole
    numbers have their mean in float64.
    """
    if is_whole(values):  # in the same way as one by one: half of one is rounded alike
        each = weights.double().view(*weights.shape, *[1] * (values.dim() - weights.dim()))
        return (values.double() * each).sum(0) / each.sum(0)
    wide = values.to(mean_type(values))
    shares = (weights / weights.sum(0)).to(wide.dtype)
    if weights.dim() == 1:
        base = wide[int((weights > 0).int().argmax())]
        apart = as_table(wide - base)
        with one_thread():
            return base + torch.mv(apart.T, shares).view_as(base)
    first = (weights > 0).int().argmax(0)  # of every row, a client that has it
    base = wide[first, torch.arange(len(first))]
    apart = wide - base
    return base + (apart * shares.view(*shares.shape, *[1] * (base.dim() - 1))).sum(0)


@dataclass
class Waiting(Generic[About]):
    """Rows of one stack that a mean is told one after the other and takes at once."""

    rows: list[Row] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    about: list[About] = field(default_factory=list)  # what else a mean is told of each

    def takes(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether this is one more row of the stack that others wait in."""
        return isinstance(tensors, Row) and self.rows[0].stack is tensors.stack

    def add(self, row: Row, weight: float, about: About) -> None:
        """One more row."""
        self.rows.append(row)
        self.weights.append(weight)
        self.about.append(about)

    def values(self, name: str) -> Tensor:
        """One tensor of all that wait."""
        whole, chosen = self.rows[0].stack.tensors[name], [row.number for row in self.rows]
        return whole if chosen == list(range(len(whole))) else whole[chosen]

    def mean(self, name: str) -> Tensor:
        """The mean of one tensor over all that wait."""
        return mean_of_rows(self.values(name), torch.tensor(self.weights, dtype=torch.float64))
