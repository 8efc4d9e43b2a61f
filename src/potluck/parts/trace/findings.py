"""From what a trace saw to the channels of a network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from potluck.core.inputs import Inputs
from potluck.core.names import own_name
from potluck.parts.cut.channels import STAYS, Channels
from potluck.parts.trace.layers import KERNEL
from potluck.parts.trace.lines import (
    equal_lines,
    group_into_blocks,
    head_lines,
    multiples_of,
    parts_of,
    rows_of,
    square_lines,
    tied_to_fixed,
)
from potluck.parts.trace.marks import FIXED
from potluck.parts.trace.recurrent import join_states
from potluck.parts.trace.seen import Trace
from potluck.parts.trace.tracer import trace

KEPT = "it is named in keep"
UNSHARED = "nothing else in the network has these channels"
STACK = "it stacks matrices, of which each is cut"
TIED = "heads of the same size stay whole"


@dataclass(frozen=True, eq=False)
class Findings:
    """A network's channels, and how they ran through it."""

    channels: Channels
    channel_of: Tensor  # the channel of every atom, or STAYS
    trace: Trace


def study(net: nn.Module, example: Inputs, keep: Iterable[str] = ()) -> Findings:
    """Run a network once and find its channels; the tensors named in `keep` stay whole."""
    attention = [name for name, module in net.named_modules() if isinstance(module, nn.MultiheadAttention)]
    seen = trace(net, example)
    seen.square += [own_name(name, "out_proj.weight") for name in attention]
    join_states(net, seen)
    return findings(seen, keep)


def findings(seen: Trace, keep: Iterable[str] = ()) -> Findings:
    """Atoms that were joined are one channel; channels that lie in the same places are one block."""
    group = components(seen.total, seen.joins.pairs())
    why = reasons(seen, group, keep)
    for name in seen.square:
        outside, inside = (group[own].tolist() for own in seen.atoms[name])
        if set(outside) <= set(why):
            why.update({channel: TIED for channel in inside if channel not in why})
    while tied := tied_to_fixed(numbered(group, why), seen):
        why.update({int(group[atom]): TIED for atom in tied})
    channel_of = numbered(group, why)
    ids = {name: tuple(channel_of[own] for own in dims) for name, dims in seen.atoms.items()}
    laid = [rows for _, rows in head_lines(channel_of, seen)]
    lines, heads = equal_lines(channel_of, [*seen.lines, *laid]), equal_lines(channel_of, laid)
    blocks = group_into_blocks(lines, ids)
    whole = {name: tuple(reason_of(group[own], why) for own in dims) for name, dims in seen.atoms.items()}
    rows = rows_of([*lines, *square_lines(channel_of, seen)], blocks)
    parts, multiples = parts_of(heads, blocks, ids), multiples_of(channel_of, seen, blocks)
    return Findings(Channels(ids, blocks, rows, parts, whole, multiples), channel_of, seen)


def components(total: int, pairs: Tensor) -> Tensor:
    """The smallest atom that each atom is connected to."""
    group = torch.arange(total)
    while True:
        least = torch.minimum(group[pairs[0]], group[pairs[1]])
        found = group.clone()
        for side in pairs:
            found.scatter_reduce_(0, group[side], least, "amin")
        found = found[found]
        if torch.equal(found, group):
            return group
        group = found


def reasons(seen: Trace, group: Tensor, keep: Iterable[str]) -> dict[int, str]:
    """Why channels have to stay, the first reason of each."""
    why: dict[int, str] = {}
    for name in keep:
        why.update({channel: KEPT for own in seen.atoms[name] for channel in group[own].tolist()})
    for atoms, reason in seen.joins.reasons:
        for channel in torch.unique(group[atoms]).tolist():
            why.setdefault(channel, reason)
    alone = torch.bincount(group) == 1
    for channel in alone.nonzero().flatten().tolist():
        why.setdefault(channel, UNSHARED)
    laid = torch.cat([torch.zeros(0, dtype=torch.long), *(atoms.flatten() for atoms in seen.merged)])
    merged = set(group[laid.clamp_min(FIXED)].tolist())
    for dims in seen.atoms.values():
        matrices = [own for own in dims if len(own) > 1 and why.get(int(group[own[0]])) != KERNEL]
        cut = [not set(group[own].tolist()) <= set(why) for own in matrices]
        stacked = any(why.get(int(group[own[0]])) == STACK for own in matrices)
        if len(matrices) == 3 and not stacked:  # heads x size lie in one dimension at times: the first are the heads
            heads = [place for place in range(3) if merged & set(group[matrices[place]].tolist())]
            stack = heads[0] if heads else 0
            if cut[stack] and sum(cut) > 1:
                why.update(dict.fromkeys(group[matrices[stack]].tolist(), STACK))
    return why


def numbered(group: Tensor, why: dict[int, str]) -> Tensor:
    """The channel of every atom, counted from 0; STAYS for those that have to stay."""
    stays = torch.zeros(len(group), dtype=torch.bool)
    stays[[FIXED, *why]] = True
    stays = stays[group]
    number = torch.full((len(group),), STAYS)
    number[~stays] = torch.unique(group[~stays], return_inverse=True)[1]
    return number


def reason_of(channels: Tensor, why: dict[int, str]) -> str:
    """Why a dimension stays; empty if any of its channels can go."""
    found = [why.get(channel) for channel in torch.unique(channels).tolist()]
    if len(channels) < 2 or None in found:
        return ""
    return str(found[0])
