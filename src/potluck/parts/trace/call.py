"""One operation of a traced run, as the rules see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from torch import Tensor

from potluck.parts.trace.marks import FREE, Joins, Marked, Marks, Strip, together
from potluck.parts.trace.slices import even


class Memory(Protocol):
    """What a run remembers of its tensors: which share their storage, and what was done to them."""

    def bases(self, tensor: Tensor) -> list[Tensor]:
        """The tensor that this one is a view of, if it was made on the spot, and its twins."""

    def mark(self, tensor: Tensor, marks: Marks) -> None:
        """Replace what is known about a tensor."""

    def note_slice(self, tensor: Tensor, dim: int, piece: tuple[int, int]) -> None:
        """A slice of a dimension, by start and length."""

    def note_merged(self, atoms: Tensor) -> None:
        """Atoms along a dimension that was laid into one with another: heads and their size."""

    def note_multiple(self, atoms: Tensor, number: int) -> None:
        """Atoms along rows that are long enough only as multiples of a number."""

    def note_heads(self, atoms: Tensor) -> None:
        """Atoms that were laid into heads."""


class UnforeseenCallError(Exception):
    """An operation is called in a way that its rule does not know."""


class Arguments(dict[str, Any]):
    """What an operation was given, by the names of its schema."""

    def __missing__(self, name: str) -> NoReturn:
        """Another overload than the rule was written for."""
        raise UnforeseenCallError(name)


@dataclass(frozen=True)
class Call:
    """What an operation was given, and what came out."""

    operation: Any
    given: Arguments
    outputs: list[Tensor]
    marked: Callable[[Tensor], Marked]  # a tensor as it was before
    joins: Joins
    where: str  # the module that runs it
    note_lines: Callable[[Tensor], None]  # rows of atoms, along the last dimension, that must stay equally long
    memory: Memory
    fix_if_used: Callable[[Tensor, tuple[Strip, ...], str], None]  # channels that have to stay once a tensor is used

    @property
    def what(self) -> str:
        """What happened where, for the user."""
        return f"{self.operation.overloadpacket.__name__} in {self.where}"

    @property
    def reason(self) -> str:
        """Why channels stay when they meet something that stays."""
        return f"it meets what stays: {self.what}"

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors among the inputs, in order."""
        values = [each for value in self.given.values() for each in (value if isinstance(value, list) else [value])]
        return [each for each in values if isinstance(each, Tensor)]

    def marks_of(self, tensor: Tensor) -> Marks:
        return self.marked(tensor).marks

    def dim(self, tensor: Tensor, usually: int = 0) -> int:
        """The dimension it works along, counted from the left."""
        dim = self.given.get("dim", usually)
        if not isinstance(dim, int):  # several, or a name
            raise UnforeseenCallError("dim")
        return dim % max(1, tensor.dim())

    def together(self, *sides: Marked) -> Marked:
        """Elements that meet belong to one channel."""
        joined = Marked((), None)
        for side in sides:
            joined = together(self.joins, joined, side, self.reason)
        return joined

    def flat(self, one: Strip, dim: int) -> Tensor:
        """A strip as atoms along one dimension; each line across it is one channel."""
        lines = one.atoms.movedim(dim, 0).reshape(one.atoms.shape[dim], -1)
        self.joins.join(lines, lines[:, :1], self.reason)
        return lines.amax(1)

    def channels(self, tensor: Tensor, dim: int) -> Tensor:
        """The atoms along one dimension: FREE if nothing is known, FIXED where there are no channels."""
        marks = self.marks_of(tensor)
        for one in sorted(marks or (), key=lambda each: (each.free, each.inner != dim)):
            if dim in one.span:
                self.joins.commit(one, self.reason)
                return self.flat(one, dim)
        return tensor.new_full((tensor.shape[dim],), FREE if marks is None else 0).long()

    def by_channel(self, tensor: Tensor, dims: int) -> Marked:
        """A tensor whose first dimensions are channels: a strip over more dimensions is laid along these alone."""
        marked = self.marked(tensor)
        if marked.marks is None:
            return marked
        found = []
        for one in marked.strips:
            atoms = one.atoms
            for dim in range(dims, atoms.dim()) if min(one.span) < dims else ():
                self.joins.join(atoms, atoms.narrow(dim, 0, 1), self.reason)
                atoms = atoms.amax(dim, keepdim=True)
            found.append(Strip(atoms, one.pending))
        return Marked(marked.shape, tuple(found))

    def note_pieces(self, pieces: list[Tensor]) -> None:
        """Pieces of equal length stay equal; unequal ones are each cut for themselves."""
        for piece in even(pieces):
            self.note_lines(piece)
