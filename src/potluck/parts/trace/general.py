"""Rules for operations on elements and dimensions: arithmetic, views, pieces, concatenation."""

from __future__ import annotations

import torch
from torch import Tensor

from potluck.parts.trace.call import Call
from potluck.parts.trace.marks import FIXED, FREE, Marked, Marks, Strip, strips


def unknown(call: Call) -> list[Marks]:
    """No rule: everything it meets has to stay."""
    for tensor in call.tensors:
        call.joins.fix(call.marked(tensor).strips, f"nothing is known about {call.what}")
    return [()] * len(call.outputs)


def pointwise(call: Call) -> list[Marks]:
    """Element by element, with broadcasting."""
    return [call.together(*map(call.marked, call.tensors)).marks] * len(call.outputs)


def same_shape(call: Call) -> list[Marks]:
    """Mixes along dimensions but leaves each as long as it was, like softmax."""
    source = call.tensors[0]
    if any(output.shape != source.shape for output in call.outputs):
        return unknown(call)
    return [call.marks_of(source)] * len(call.outputs)


def fresh(call: Call) -> list[Marks]:
    """Made on the spot: its sizes come from nothing that is marked."""
    return [None] * len(call.outputs)


def restriding(call: Call) -> list[Marks]:
    """Another order in memory; as long as the shape stays, nothing moves."""
    marked = call.marked(call.given["self"])
    return [marked.marks] if marked.shape == tuple(call.outputs[0].shape) else unknown(call)


def copying(call: Call) -> list[Marks]:
    """Into a tensor, or into a part of one that was made on the spot, such as a list of states."""
    target, source = call.given["self"], call.marked(call.given["src"])
    written = call.together(call.marked(target), source)
    placed = source.reshaped((1,) * (target.dim() - len(source.shape)) + source.shape)
    for base in call.memory.bases(target):
        found = strips(one for each in placed.strips for one in laid_in(call, each, target, base))
        call.memory.mark(base, call.together(call.marked(base), Marked(tuple(base.shape), found)).marks)
    return [written.marks]


def laid_in(call: Call, one: Strip, target: Tensor, base: Tensor) -> list[Tensor]:
    """A strip of a view, laid along the same dimension of the tensor it is a view of; else it has to stay."""
    step, size = target.stride(one.inner), target.shape[one.inner]
    same = [dim for dim in range(base.dim()) if (base.stride(dim), base.shape[dim]) == (step, size)]
    if one.span != (one.inner,) or len(same) != 1:
        call.joins.fix([one], f"written into a part of a tensor made in {call.where}")
        return []
    return [one.atoms.reshape([-1 if dim == same[0] else 1 for dim in range(base.dim())])]


def reshaping(call: Call) -> list[Marks]:
    """A view with other sizes."""
    target = call.outputs[0].shape
    if call.outputs[0].numel() != call.given["self"].numel():  # another type, with more or fewer bytes per number
        return unknown(call)
    return [call.marked(call.given["self"]).moved(lambda atoms: atoms.reshape(target))]


def moving(call: Call) -> list[Marks]:
    """Only moves elements: the same operation moves the atoms."""
    first, source = next(iter(call.given.items()))
    marked = call.marked(source)
    if marked.marks is None:
        return [None] * len(call.outputs)
    moved: list[list[Strip]] = [[] for _ in call.outputs]
    for one in marked.strips:
        result = call.operation(**{**call.given, first: one.atoms.expand(marked.shape)})
        for place, atoms in zip(moved, result if isinstance(result, list | tuple) else [result], strict=True):
            place.append(Strip(atoms, one.pending))
    return [strips(found) for found in moved]


def padding(call: Call) -> list[Marks]:
    """Padding behind channels may stand for any of them; channels padded in front have to stay."""
    marked, pads = call.marked(call.given["self"]), call.given["pad"]
    call.given["value"] = FREE
    front = {len(marked.shape) - 1 - at // 2 for at in range(0, len(pads), 2) if pads[at] > 0}
    moved = moving(call)
    if not any(one.inner in front for one in marked.strips):
        return moved
    call.joins.fix((one for one in marked.strips if one.inner in front), f"padded in front: {call.what}")
    return [tuple(one for one in marks or () if one.inner not in front) for marks in moved]


def splitting(call: Call) -> list[Marks]:
    """Pieces of a dimension."""
    source, dim = call.given["self"], call.dim(call.given["self"])
    for one in call.marked(source).strips:
        if one.inner == dim:
            lines = one.atoms.movedim(dim, -1).reshape(-1, source.shape[dim])
            call.note_pieces(list(lines.split([output.shape[dim] for output in call.outputs], dim=-1)))
    return moving(call)


def slicing(call: Call) -> list[Marks]:
    """One piece of a dimension; what is left are pieces, too."""
    source, dim = call.given["self"], call.dim(call.given["self"])
    whole, piece = source.shape[dim], call.outputs[0].shape[dim]
    start = call.given.get("start") or 0
    start = max(0, start + whole) if start < 0 else start
    if 0 < piece < whole and call.given.get("step", 1) == 1:
        sizes = [piece] * (whole // piece)
        if whole % piece or start % piece:
            sizes = [size for size in (start, piece, whole - start - piece) if size]
        for one in call.marked(source).strips:
            if one.inner == dim:
                lines = one.atoms.movedim(dim, -1).reshape(-1, whole)
                call.note_pieces(list(lines.split(sizes, dim=-1)))
    return moving(call)


def picking(call: Call) -> list[Marks]:
    """One index of a dimension, or each for itself: channels picked by number have to stay."""
    source, dim = call.given["self"], call.dim(call.given["self"])
    for one in call.marked(source).strips:
        if one.span == (dim,):
            for output in call.outputs:
                call.fix_if_used(output, (one,), f"picked by number: {call.what}")
        elif one.inner == dim:  # one of a pair: both go together
            call.joins.join(one.atoms, one.atoms.narrow(dim, 0, 1), call.reason)
    return moving(call)


def indexing(call: Call) -> list[Marks]:
    """A table read by index tensors: what is indexed has to stay."""
    source, indices = call.given["self"], call.given["indices"]
    indexed = {dim for dim, index in enumerate(indices) if index is not None}
    marked = call.marked(source)
    call.joins.fix((one for one in marked.strips if indexed & set(one.span)), f"read by index: {call.what}")
    for index in indices:
        if index is not None:
            call.joins.fix(call.marked(index).strips, f"used as an index: {call.what}")
    rest = Marked(marked.shape, tuple(one for one in marked.strips if not indexed & set(one.span)))
    return [rest.moved(lambda atoms: call.operation(atoms, indices))]


def gathering(call: Call) -> list[Marks]:
    """An index for every element: what lies along the indexed dimension has to stay, the rest is as it was."""
    source, dim, output = call.tensors[0], call.dim(call.tensors[0]), call.outputs[0]
    kept = []
    for one in call.marked(source).strips:
        if one.span != (one.inner,) or one.inner == dim or output.shape[one.inner] != source.shape[one.inner]:
            call.joins.fix([one], f"read by index: {call.what}")
        else:
            kept.append(one)
    return [tuple(kept)] * len(call.outputs)


def adding_rows(call: Call) -> list[Marks]:
    """Rows added or copied at an index: across them the channels are the same."""
    target, source, dim = call.given["self"], call.given["source"], call.dim(call.given["self"])
    sides = []
    for tensor in (target, source):
        marked = call.marked(tensor)
        shape = tuple(1 if place == dim else size for place, size in enumerate(marked.shape))
        across = tuple(one for one in marked.strips if dim not in one.span)
        call.joins.fix((one for one in marked.strips if dim in one.span), f"written by index: {call.what}")
        sides.append(Marked(shape, None if marked.marks is None else across))
    return [call.together(*sides).marks]


def selecting(call: Call) -> list[Marks]:
    """Rows by number."""
    source, dim = call.given["self"], call.dim(call.given["self"])
    marked = call.marked(source)
    call.joins.fix((one for one in marked.strips if dim in one.span), f"read by index: {call.what}")
    return moving(call)


def joining(call: Call) -> list[Marks]:
    """Along a concatenation channels follow one another; across it they are the same."""
    output = call.outputs[0]
    dim = call.dim(output)
    parts = [call.marked(part) for part in call.given["tensors"] if part.dim() == output.dim()]
    if all(part.marks is None for part in parts):
        return [None]
    found: list[Strip] = []
    for inner in sorted({one.inner for part in parts for one in part.strips if one.inner == dim or dim in one.span}):
        laid = [one_along(part, inner, dim) for part in parts]
        sizes = [max(each.shape[place] for each in laid) for place in range(output.dim())]
        along = [each.expand([*sizes[:dim], each.shape[dim], *sizes[dim + 1 :]]) for each in laid]
        found += strips([torch.cat(along, dim)])
    across = [
        Marked(
            tuple(1 if place == dim else size for place, size in enumerate(part.shape)),
            None if part.marks is None else tuple(one for one in part.strips if dim not in one.span),
        )
        for part in parts
    ]
    beside = {one.inner for one in found}
    return [(*found, *(one for one in call.together(*across).strips if one.inner not in beside))]


def one_along(part: Marked, inner: int, dim: int) -> Tensor:
    """The atoms that lie along a dimension, as long as the tensor along the one it is joined at."""
    nothing = torch.full((1,) * len(part.shape), FREE if part.marks is None else FIXED)
    atoms = next((one.atoms for one in part.strips if one.inner == inner), nothing)
    return atoms.expand([part.shape[dim] if place == dim else size for place, size in enumerate(atoms.shape)])


def stacking(call: Call) -> list[Marks]:
    """Concatenation along a new dimension."""
    dim = call.dim(call.outputs[0])
    joined = call.together(*map(call.marked, call.given["tensors"]))
    if joined.marks is None:
        return [None]
    return [tuple(Strip(one.atoms.unsqueeze(dim), one.pending) for one in joined.strips)]
