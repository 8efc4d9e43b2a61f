"""What a run of a network showed."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from potluck.parts.trace.marks import Joins, Marked


@dataclass(frozen=True)
class Step:
    """One operation as it ran: which, in which module, and what came out."""

    operation: str
    where: str
    shapes: tuple[tuple[int, ...], ...]
    marked: tuple[Marked, ...]


@dataclass(frozen=True)
class Heads:
    """Rows of atoms that a module laid a layer's channels into; it may remember how long they are."""

    where: str
    atoms: Tensor  # over several dimensions, or along one if there is one head


@dataclass
class Trace:
    """What was seen: the atoms of every tensor, what joined them, and every step of the run."""

    atoms: dict[str, tuple[Tensor, ...]]  # per tensor and per dimension
    total: int  # how many atoms there are, FIXED among them
    joins: Joins = field(default_factory=Joins)
    lines: list[Tensor] = field(default_factory=list)  # rows of atoms that must stay equally long: pieces of a split
    heads: list[Heads] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    results: list[tuple[str, tuple[Marked, ...]]] = field(default_factory=list)  # of modules, in running order
    square: list[str] = field(default_factory=list)  # weights that PyTorch's own layers ask to be square
    multiples: list[tuple[Tensor, int]] = field(default_factory=list)  # atoms whose kernel takes only such numbers
    merged: list[Tensor] = field(default_factory=list)  # atoms of dimensions that were laid into one: heads, their size
