"""The channels of a network: which indices of which parameters go together, and which have to stay."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, get_args

import torch
from torch import Tensor

from potluck.core.errors import ModelError
from potluck.parts.cut.balance import Balance, Rows
from potluck.parts.cut.choice import Block, Choice, Prefix
from potluck.parts.cut.kept import Kept
from potluck.parts.cut.plan import Plan, Shapes

STAYS = -1
Rounding = Literal["ceil", "round"]
Parts = tuple[tuple[int, int], ...]
"""What a size is made of, as (times, smaller size)."""


@dataclass(frozen=True, eq=False)
class Channels:
    """The channel of each index of each dimension of each tensor, and the blocks that channels come in."""

    ids: Mapping[str, tuple[Tensor, ...]]  # STAYS where an index belongs to no channel
    blocks: tuple[Block, ...]
    rows: tuple[Rows, ...]  # sets of rows that must stay equally long
    parts: Mapping[int, Parts]  # blocks whose size is made of smaller ones, such as heads, which are rounded separately
    whole: Mapping[str, tuple[str, ...]]  # why each dimension of a tensor stays, "" where it does not
    multiples: Mapping[int, int] = field(default_factory=dict)  # blocks of which only multiples of a number can be kept

    def counts(self, width: float, rounding: Rounding = "ceil") -> list[int]:
        """How many channels a narrow network has of each block."""
        sizes = [block.size for block in self.blocks]
        parts = [self.parts.get(number, ((1, size),)) for number, size in enumerate(sizes)]
        counts = [sum(times * rounded(width * part, rounding) for times, part in each) for each in parts]
        for block, multiple in self.multiples.items():
            counts[block] = min(sizes[block], -(-counts[block] // multiple) * multiple)
        return Balance(sizes, self.rows, width).evened(counts)

    def unusual(self, width: float, rounding: Rounding) -> dict[int, str]:
        """Why blocks keep another number of channels than the width alone would give."""
        found = {}
        for number, count in enumerate(self.counts(width, rounding)):
            size, pieces = self.blocks[number].size, Counter[int]()
            for times, part in self.parts.get(number, ()):
                pieces[part] += times
            wanted, kept = rounded(width * size, rounding), {part: rounded(width * part, rounding) for part in pieces}
            if wanted == count:
                continue
            if count == sum(times * kept[part] for part, times in pieces.items()):
                each = (f"{times} heads or groups keep {kept[part]} of {part}" for part, times in pieces.items())
                why = f"{', '.join(each)} each"
            elif number in self.multiples and count % self.multiples[number] == 0:
                why = f"a grouped product takes multiples of {self.multiples[number]}"
            elif count == size:
                why = "nothing less was found with which heads, groups or pieces beside it stay equally long"
            else:
                why = "heads, groups or pieces beside it have to stay equally long"
            found[number] = f"{count} of {size} instead of {wanted}: {why}"
        return found

    def counts_in(self, narrow: Shapes) -> list[int]:
        """How many channels a network with these shapes has of each block."""
        try:
            return self.shared_out(narrow)
        except ModelError:
            widths = {
                small / size for name in narrow for small, size in zip(narrow[name], self.shape(name), strict=True)
            }
            for width, rounding in product(sorted(widths), get_args(Rounding)):
                counts = self.counts(width, rounding)
                found = self.plan(counts).shapes
                if all(found[name] == tuple(shape) for name, shape in narrow.items()):
                    return counts
            raise

    def shared_out(self, narrow: Shapes) -> list[int]:
        """How many channels each block must have so that the blocks of every dimension share its size evenly."""
        owner = self.owners()
        counts = [0] * len(self.blocks)

        def places(block: int, held: int) -> int:
            return held * counts[block] // self.blocks[block].size

        waiting = [(name, dim, *positions_in(ids, owner)) for name in narrow for dim, ids in enumerate(self.ids[name])]
        while waiting:
            waiting.sort(key=lambda each: sum(counts[block] == 0 for block in each[2]))
            name, dim, held, staying = waiting.pop(0)
            size = narrow[name][dim]
            known = sum(places(block, count) for block, count in held.items())
            unknown = {block: count for block, count in held.items() if not counts[block]}
            for block in unknown:
                kept, rest = divmod(self.blocks[block].size * (size - staying - known), sum(unknown.values()))
                if rest or not 0 < kept <= self.blocks[block].size:
                    raise mismatch(name, dim, size)
                counts[block] = kept
            if staying + sum(places(block, count) for block, count in held.items()) != size:
                raise mismatch(name, dim, size)
        return [count or block.size for count, block in zip(counts, self.blocks, strict=True)]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor in the wide network."""
        return tuple(len(ids) for ids in self.ids[name])

    @property
    def total(self) -> int:
        """How many channels there are."""
        return 1 + max((channel for block in self.blocks for channel in block.channels), default=0)

    def held(self, plan: Plan) -> Tensor:
        """Whether a plan keeps each channel."""
        held = torch.zeros(self.total, dtype=torch.bool)
        for name, dims in self.ids.items():
            for ids, kept in zip(dims, plan[name], strict=True):
                chosen = ids[kept.indices]
                held[chosen[chosen != STAYS]] = True
        return held

    def plan(self, counts: Sequence[int], choice: Choice = Prefix()) -> Plan:  # noqa: B008 - it is frozen
        """The indices of every tensor that a narrow network holds."""
        held = torch.zeros(self.total, dtype=torch.bool)
        for block, count in zip(self.blocks, counts, strict=True):
            chosen = range(block.size) if count == block.size else choice(block, count)
            held[[block.channels[position] for position in chosen]] = True
        return Plan.of({name: tuple(kept_of(ids, held) for ids in dims) for name, dims in self.ids.items()})

    def first_tensors(self) -> dict[int, str]:
        """The name of the first tensor that each channel lies in."""
        found: dict[int, str] = {}
        for name, dims in self.ids.items():
            for ids in dims:
                for channel in ids[ids != STAYS].tolist():
                    found.setdefault(channel, name)
        return found

    def owners(self) -> Tensor:
        """The number of the block that each channel is in."""
        owner = torch.zeros(self.total, dtype=torch.long)
        for number, block in enumerate(self.blocks):
            owner[list(block.channels)] = number
        return owner


def rounded(channels: float, rounding: Rounding) -> int:
    """⌈c⌉ (HeteroFL) or round(c) (FedHM), never below 1."""
    # 0.07 * 100 is 7.000000000000001 in floating point: without the inner rounding it would give 8.
    return max(1, math.ceil(round(channels, 9)) if rounding == "ceil" else round(channels))


def kept_of(ids: Tensor, held: Tensor) -> Kept:
    """The indices of one dimension that are held."""
    stays = (ids == STAYS) | held[ids.clamp_min(0)]
    return Kept.of(len(ids), stays.nonzero().flatten().tolist())


def positions_in(ids: Tensor, owner: Tensor) -> tuple[dict[int, int], int]:
    """How many indices of a dimension each block has, and how many belong to no channel."""
    blocks, counts = torch.unique(owner[ids[ids != STAYS]], return_counts=True)
    return dict(zip(blocks.tolist(), counts.tolist(), strict=True)), int((ids == STAYS).sum())


def mismatch(name: str, dim: int, size: int) -> ModelError:
    return ModelError(
        f"'{name}' has {size} channels in dimension {dim} of the narrow network, which do not fit the channels found "
        "in the wide one; choose widths that leave every head, gate and group the same number"
    )


def channels_by_size(wide: Shapes, narrow: Shapes, blocks: Mapping[str, tuple[int, ...]]) -> Channels:
    """Channels told by sizes alone: dimensions cut from the same size to the same size are the same channels."""
    ids: dict[str, tuple[Tensor, ...]] = {}
    starts: dict[tuple[int, int], int] = {}
    total = 0
    for name, shape in wide.items():
        dims = []
        for size, kept, parts in zip(shape, narrow[name], blocks.get(name, (1,) * len(shape)), strict=True):
            if kept == size:
                dims.append(torch.full((size,), STAYS))
                continue
            if size % parts or kept % parts:
                raise ModelError(
                    f"'{name}' has {size} channels in {parts} blocks (heads, gates), of which {kept} cannot be kept "
                    "evenly; choose widths that leave every block the same number"
                )
            key = (size // parts, kept // parts)
            if key not in starts:
                starts[key], total = total, total + key[0]
            dims.append(torch.arange(starts[key], starts[key] + key[0]).repeat(parts))
        ids[name] = tuple(dims)
    found = tuple(Block(tuple(range(start, start + size))) for (size, _), start in starts.items())
    return Channels(ids, found, (), {}, {name: ("",) * len(shape) for name, shape in wide.items()})
