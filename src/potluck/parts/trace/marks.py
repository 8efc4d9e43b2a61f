"""Which channel every element of a tensor belongs to, and what operations do to it.

A tensor's marks say along which of its dimensions channels lie. One *strip* is an integer tensor
that broadcasts to the tensor: the channel atom of every element, FIXED where an element is not a
channel's, FREE (or any number below zero) where it may stand for any. A strip may vary over several dimensions, after a
layer's channels have been viewed as heads x size: the innermost of them is the one that can be
cut, since a narrow network has the same heads, each with fewer channels.

Atoms start as the indices of the parameters' dimensions. Operations join them: what is added is
one channel, what is multiplied and summed is one channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

FIXED, FREE = 0, -1
BASE = 1 << 31  # more than any network has atoms


@dataclass(frozen=True, eq=False)
class Strip:
    """One set of channels that runs through a tensor."""

    atoms: Tensor  # int64, as many dimensions as the tensor, size 1 where it does not vary
    pending: Tensor | None = None  # pairs of atoms that are one channel if this strip turns out to be channels

    @cached_property
    def span(self) -> tuple[int, ...]:
        """The dimensions along which it varies."""
        return tuple(dim for dim, size in enumerate(self.atoms.shape) if size > 1)

    @cached_property
    def inner(self) -> int:
        """The dimension along which neighbours are neighbours: the one that can be cut."""
        if len(self.span) == 1:
            return self.span[0]
        steps: dict[int, int] = {}
        for dim in self.span:
            lines = self.atoms.movedim(dim, -1).reshape(-1, self.atoms.shape[dim])
            known = (lines[:, 1:].sign() * lines[:, :-1].sign() > 0) & (lines[:, 1:] != lines[:, :-1])
            step = (lines[:, 1:] - lines[:, :-1]).abs()[known]
            steps[dim] = int(step.min()) if len(step) else 1 << 60
        return min(self.span, key=lambda dim: (steps[dim], -dim))

    @cached_property
    def free(self) -> bool:
        """Whether it is as long as need be: it may stand for any channels, or for none."""
        return bool((self.atoms < 0).all())

    def along(self, sizes: Mapping[int, int], dims: int) -> Strip:
        """The same in another tensor, along the dimensions that have these sizes there."""
        return Strip(self.atoms.reshape([sizes.get(dim, 1) for dim in range(dims)]), self.pending)


Marks = tuple[Strip, ...] | None
"""The strips of a tensor, in no order; dimensions without one are fixed. None: nothing is known, all is free."""


def strip(atoms: Tensor, pending: Tensor | None = None) -> Strip | None:
    """A strip without the dimensions along which it is constant; None if it has no channels."""
    for dim, size in enumerate(atoms.shape):
        if size > 1:
            if atoms.stride(dim) == 0:
                atoms = atoms.narrow(dim, 0, 1)
                continue
            top = atoms.amax(dim, keepdim=True)
            if bool(((atoms == top) | ((atoms < 0) & (top > FIXED))).all()):
                atoms = top
    if atoms.numel() <= 1:
        return None
    return Strip(atoms.contiguous(), pending)


def strips(candidates: Iterable[Tensor | Strip]) -> tuple[Strip, ...]:
    """The strips worth keeping."""
    given = (each if isinstance(each, Strip) else Strip(each) for each in candidates)
    return tuple(found for each in given if (found := strip(each.atoms, each.pending)) is not None)


@dataclass
class Joins:
    """The pairs of atoms that were found to be one channel, and why some must stay."""

    keys: list[Tensor] = field(default_factory=list)  # every pair as one number, the smaller atom first
    reasons: list[tuple[Tensor, str]] = field(default_factory=list)

    def join(self, one: Tensor, other: Tensor, reason: str) -> None:
        """These are the same channels, element by element."""
        first, second = paired(one, other)
        met = (first >= 0) & (second >= 0) & (first != second)
        if bool(met.any()):
            first, second = first[met], second[met]
            key = torch.unique(torch.minimum(first, second) * BASE + torch.maximum(first, second))
            self.keys.append(key)
            fixed = key[key < BASE]  # FIXED is the smallest atom
            if fixed.numel():
                self.reasons.append((fixed, reason))

    def pairs(self) -> Tensor:
        """All pairs of atoms that are channels, each once."""
        keys = torch.unique(torch.cat([*self.keys, torch.zeros(0, dtype=torch.long)]))
        keys = keys[keys >= BASE]
        return torch.stack([keys // BASE, keys % BASE])

    def commit(self, one: Strip, reason: str) -> None:
        """This strip is channels."""
        if one.pending is not None:
            self.join(one.pending[0], one.pending[1], reason)

    def fix(self, marked: Iterable[Strip], reason: str) -> None:
        """These channels have to stay; what only may be channels is none."""
        for one in marked:
            if one.pending is None:
                self.join(one.atoms, torch.zeros((), dtype=torch.long), reason)


@dataclass(frozen=True)
class Marked:
    """A tensor's shape with its marks."""

    shape: tuple[int, ...]
    marks: Marks

    @property
    def strips(self) -> tuple[Strip, ...]:
        return self.marks or ()

    @property
    def channels(self) -> tuple[Strip, ...]:
        """The strips that are channels, or partly."""
        return tuple(one for one in self.strips if not one.free)

    def follows(self, dim: int) -> bool:
        """Whether it is as long as what it meets along a dimension."""
        return self.shape[dim] == 1 or any(one.free and one.inner == dim for one in self.strips)

    def reshaped(self, shape: Sequence[int]) -> Marked:
        """The same with dimensions of size 1 put in or left out."""
        if tuple(shape) == self.shape:
            return self
        found = []
        for one in self.strips:
            sizes = iter(one.atoms.shape[dim] for dim, size in enumerate(self.shape) if size > 1)
            atoms = one.atoms.reshape([next(sizes) if size > 1 else 1 for size in shape])
            found.append(Strip(atoms, one.pending))
        return Marked(tuple(shape), None if self.marks is None else tuple(found))

    def moved(self, operation: Callable[[Tensor], Tensor]) -> Marks:
        """The marks after an operation that only moves elements."""
        if self.marks is None:
            return None
        return strips(Strip(operation(one.atoms.expand(self.shape)), one.pending) for one in self.strips)


def lively(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape in which what is empty has one element, so that channels can be followed through it."""
    return tuple(size or 1 for size in shape)


def free_along(dim: int, size: int, dims: int) -> Strip:
    """A dimension that was made as long as need be: numbers below zero tell its places apart."""
    return Strip((FREE - 1 - torch.arange(size)).reshape([-1 if place == dim else 1 for place in range(dims)]))


def together(joins: Joins, one: Marked, other: Marked, reason: str) -> Marked:
    """An operation element by element, with broadcasting: what meets is one channel."""
    shape = torch.broadcast_shapes(one.shape, other.shape)
    one, other = (side.reshaped((1,) * (len(shape) - len(side.shape)) + side.shape) for side in (one, other))
    if one.marks is None or other.marks is None:
        known = other.marks if one.marks is None else one.marks
        return Marked(shape, known)
    kept = []
    partnered = set()
    for mine in one.channels:
        twins = partners(mine, [theirs for theirs in other.channels if theirs.inner == mine.inner])
        for twin in twins:
            partnered.add(id(twin))
            mine = joined(joins, mine, twin, reason)
        if not twins and not other.follows(mine.inner):
            joins.fix([mine], reason)
        else:
            kept.append(mine)
    for theirs in other.channels:
        if id(theirs) not in partnered:
            if one.follows(theirs.inner):
                kept.append(theirs)
            else:
                joins.fix([theirs], reason)
    for side, across in ((one, other), (other, one)):
        for loose in side.strips:
            if loose.free and across.follows(loose.inner) and all(each.inner != loose.inner for each in kept):
                kept.append(loose)
    return Marked(shape, tuple(kept))


def partners(mine: Strip, twins: list[Strip]) -> list[Strip]:
    """Of several strips along one dimension, such as heads and their size, those that repeat as this one does."""
    if len(twins) < 2:
        return twins
    pattern = torch.unique(mine.atoms, return_inverse=True)[1]
    alike = [each for each in twins if torch.equal(torch.unique(each.atoms, return_inverse=True)[1], pattern)]
    return alike or twins


def joined(joins: Joins, one: Strip, other: Strip, reason: str) -> Strip:
    """Two strips that are the same channels; as long as neither is known to be channels, that is pending, too."""
    atoms = max(one, other, key=lambda each: len(each.span)).atoms
    if bool((atoms < 0).any()):
        first, second = torch.broadcast_tensors(one.atoms, other.atoms)
        atoms = torch.where(first < 0, second, first)
    if one.pending is None or other.pending is None:
        joins.commit(one, reason)
        joins.commit(other, reason)
        joins.join(one.atoms, other.atoms, reason)
        return Strip(atoms)
    return Strip(atoms, torch.cat([one.pending, other.pending, paired(one.atoms, other.atoms)], dim=1))


def paired(one: Tensor, other: Tensor) -> Tensor:
    """Atoms side by side, element by element."""
    return torch.stack([atoms.reshape(-1) for atoms in torch.broadcast_tensors(one, other)])


def summed(joins: Joins, given: Marked, dims: Iterable[int], reason: str) -> tuple[Strip, ...]:
    """A sum over dimensions: channels summed over are gone, those that only lie across are one each."""
    gone = set(dims)
    kept = []
    for one in given.strips:
        crossed = [dim for dim in one.span if dim in gone]
        if set(one.span) <= gone:
            continue
        atoms, pending = one.atoms, one.pending
        for dim in crossed:
            first = atoms.narrow(dim, 0, 1)
            if one.inner in gone:  # a norm over every head, or the best of some pieces? what follows will tell
                pairs = paired(atoms, first)
                pending = pairs if pending is None else torch.cat([pending, pairs], dim=1)
            else:
                joins.join(atoms, first, reason)
            atoms = first
        kept.append(Strip(atoms, pending))
    return tuple(kept)
