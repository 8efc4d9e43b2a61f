"""The blocks that channels come in: a layer's, a head's, a piece's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from potluck.parts.cut.balance import Row, Rows
from potluck.parts.cut.channels import STAYS, Parts
from potluck.parts.cut.choice import Block
from potluck.parts.trace.marks import strip
from potluck.parts.trace.seen import Trace


def equal_lines(channel_of: Tensor, lines: Iterable[Tensor]) -> list[Tensor]:
    """Rows of channels that must stay equally long, each set of rows once: heads, groups, pieces of a split."""
    found: dict[bytes, Tensor] = {}
    for rows in lines:
        channels = torch.where(rows > 0, channel_of[rows.clamp_min(0)], STAYS)
        if bool((channels != STAYS).any()):
            found.setdefault(str(tuple(channels.shape)).encode() + channels.numpy().tobytes(), channels)
    return list(found.values())


def square_lines(channel_of: Tensor, seen: Trace) -> list[Tensor]:
    """The channels of heads and of the layer that they make or read, by a square weight: they stay equally many."""
    headed = torch.zeros(int(channel_of.max()) + 2, dtype=torch.bool)  # the last is for what stays
    for _, lines in head_lines(channel_of, seen):
        if len(lines) > 1:
            headed[channel_of[lines[lines > 0]]] = True
    headed[STAYS] = False
    found = []
    for dims in seen.atoms.values():
        if len(dims) == 2 and len(dims[0]) == len(dims[1]):
            sides = channel_of[torch.stack(dims)]
            heads = headed[sides].all(1)
            if bool((sides != STAYS).all()) and bool(heads.any()):
                found.append(sides if bool(heads[0]) else sides.flip(0))
    return found


def head_lines(channel_of: Tensor, seen: Trace) -> Iterator[tuple[str, Tensor]]:
    """Rows of atoms along the dimension of heads that can be cut, and the module that made them."""
    shifted = torch.cat([channel_of.new_zeros(1), channel_of[1:] + 1])
    for heads in seen.heads:
        atoms = heads.atoms
        channels = strip(torch.where(atoms > 0, shifted[atoms.clamp_min(0)], atoms))
        if channels is None:
            inner = atoms.dim() - 1
        else:  # one channel that fills a dimension does not lie along it
            inner = channels.inner
            for dim, size in enumerate(channels.atoms.shape):
                atoms = atoms.narrow(dim, 0, 1) if size == 1 else atoms
        yield heads.where, atoms.movedim(inner, -1).reshape(-1, atoms.shape[inner])


def tied_to_fixed(channel_of: Tensor, seen: Trace) -> set[int]:
    """Atoms in rows as long as rows of the same module that stay: one of its attributes may hold the length of both."""
    rows = list(head_lines(channel_of, seen))
    stays = [bool((channel_of[lines.clamp_min(0)] == STAYS).all()) for _, lines in rows]
    fixed = {
        (where, lines.shape)
        for (where, lines), whole in zip(rows, stays, strict=True)
        if whole and bool((lines > 0).all())
    }
    found: set[int] = set()
    for (where, lines), whole in zip(rows, stays, strict=True):
        if not whole and (where, lines.shape) in fixed:
            free = lines[(lines > 0) & (channel_of[lines.clamp_min(0)] != STAYS)]
            found |= set(free.tolist())
    return found


def group_into_blocks(lines: Sequence[Tensor], ids: Mapping[str, Sequence[Tensor]]) -> tuple[Block, ...]:
    """Channels that lie in the same dimensions, and in the same row wherever rows must stay equally long."""
    signature: dict[int, list[tuple[int, int]]] = {}
    places = [dim for dims in ids.values() for dim in dims]
    for number, rows in enumerate([[dim] for dim in places] + [list(rows) for rows in lines]):
        for row, channels in enumerate(rows):
            for channel in torch.unique(channels[channels != STAYS]).tolist():
                signature.setdefault(channel, []).append((number, row))
    blocks: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for channel in sorted(signature):
        blocks.setdefault(tuple(signature[channel]), []).append(channel)
    return tuple(Block(tuple(members)) for members in blocks.values())


def rows_of(lines: Sequence[Tensor], blocks: Sequence[Block]) -> tuple[Rows, ...]:
    """Sets of different rows, by the places that each block has in each row."""
    owner = {channel: number for number, block in enumerate(blocks) for channel in block.channels}
    found: dict[Rows, None] = {}
    for rows in lines:
        counted = dict.fromkeys(row_of(row, owner) for row in rows)
        if len(counted) > 1:
            found[tuple(counted)] = None
    return tuple(found)


def row_of(channels: Tensor, owner: Mapping[int, int]) -> Row:
    """How many places each block has in a row, and how many stay."""
    places = Counter(owner[channel] for channel in channels.tolist() if channel != STAYS)
    return Row(tuple(sorted(places.items())), int((channels == STAYS).sum()))


def parts_of(heads: Sequence[Tensor], blocks: Sequence[Block], ids: Mapping[str, Sequence[Tensor]]) -> dict[int, Parts]:
    """What a block's size is made of: a layer's of heads, a head's of pairs and single channels.

    Blocks count that are heads, or lie in one tensor with heads: there, code may have one size for both.
    """
    owner = {channel: number for number, block in enumerate(blocks) for channel in block.channels}
    made = smaller_sizes(heads, blocks, owner)
    concerned: set[int] = set()
    small: set[int] = set()  # smaller than the layer that was laid into heads
    for rows in heads:
        held = held_in([rows], owner)
        concerned |= held
        small |= {block for block in held if blocks[block].size < rows.numel()}
    for dims in ids.values() if made else ():
        held = held_in(dims, owner)
        concerned |= held if held & small else set()
    return {number: taken_apart(blocks[number].size, made) for number in concerned if blocks[number].size in made}


def multiples_of(channel_of: Tensor, seen: Trace, blocks: Sequence[Block]) -> dict[int, int]:
    """Blocks of which only multiples of a number can be kept."""
    owner = {channel: number for number, block in enumerate(blocks) for channel in block.channels}
    found: dict[int, int] = {}
    for atoms, multiple in seen.multiples:
        for block in held_in([channel_of[atoms.clamp_min(0)].flatten()], owner):
            found[block] = max(multiple, found.get(block, 1))
    return found


def held_in(rows: Iterable[Tensor], owner: Mapping[int, int]) -> set[int]:
    """The blocks that these rows of channels are of."""
    return {owner[channel] for row in rows for channel in torch.unique(row[row != STAYS]).tolist()}


def smaller_sizes(heads: Sequence[Tensor], blocks: Sequence[Block], owner: Mapping[int, int]) -> dict[int, Parts]:
    """Which sizes are made of smaller ones."""
    found: dict[int, Parts] = {}

    def note(size: int, parts: Parts) -> None:
        if sum(times for times, _ in parts) > sum(times for times, _ in found.get(size, ())):
            found[size] = parts

    for rows in heads:
        count, length = rows.shape
        if count > 1:
            note(count * length, ((count, length),))
        places = row_of(rows[0], owner).places
        parts = tuple((held // blocks[block].size, blocks[block].size) for block, held in places)
        if sum(times for times, _ in parts) > 1 and sum(times * size for times, size in parts) == length:
            note(length, parts)
    return found


def taken_apart(size: int, made: Mapping[int, Parts]) -> Parts:
    """The smallest sizes that one is made of."""
    parts = made.get(size, ())
    return tuple((times * n, least) for times, part in parts for n, least in taken_apart(part, made)) or ((1, size),)
