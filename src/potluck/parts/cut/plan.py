"""Cutting a wide network down to a narrow one: which part of every tensor is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from potluck.core.types import Tensors
from potluck.parts.cut.kept import Cut, HeldPart, Kept

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Plan:
    """Which part of every wide tensor a narrow network holds."""

    entries: tuple[tuple[str, Cut], ...]

    @classmethod
    def of(cls, cuts: Mapping[str, Cut]) -> Plan:
        """The plan that cuts each tensor like this.

        >>> import torch
        >>> plan = Plan.of({"w": (Kept.of(4, [0, 3]), Kept.of(2, [0, 1]))})
        >>> plan.take({"w": torch.arange(8).view(4, 2)})["w"].tolist()
        [[0, 1], [6, 7]]
        """
        return cls(tuple(cuts.items()))

    @cached_property
    def parts(self) -> dict[str, HeldPart]:
        parts: dict[Cut, HeldPart] = {}  # shared by tensors that are cut in the same way
        return {name: parts.setdefault(cut, HeldPart(cut)) for name, cut in self.entries}

    def __getitem__(self, name: str) -> Cut:
        return self.parts[name].cut

    def take(self, tensors: Mapping[str, Tensor]) -> Tensors:
        """The narrow tensors that the plan names; views of the wide ones if each dimension keeps one run of indices."""
        return {name: part.take(tensors[name]) for name, part in self.parts.items() if name in tensors}

    @cached_property
    def narrowed(self) -> frozenset[str]:
        """The tensors that are smaller than in the wide network."""
        return frozenset(name for name, part in self.parts.items() if not part.whole)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The narrow shapes."""
        return {name: part.shape for name, part in self.parts.items()}


def whole_plan(shapes: Shapes) -> Plan:
    """The plan that holds all of every tensor."""
    return Plan.of({name: tuple(Kept(size, ((0, size),)) for size in shape) for name, shape in shapes.items()})


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}
