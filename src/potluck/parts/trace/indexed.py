"""Rules for reading and writing by index: what is indexed has to stay, across it the channels are the same."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from potluck.parts.trace.call import Call, UnforeseenCallError
from potluck.parts.trace.general import unknown
from potluck.parts.trace.marks import Marked, Marks


def indexing(call: Call) -> list[Marks]:
    """A table read by index tensors: what is indexed has to stay."""
    source, indices = call.given["self"], call.given["indices"]
    rest = unindexed(call, source, indexed_dims(indices), "read")
    fix_indices(call, indices)
    if call.outputs[0].numel():
        return [rest.moved(lambda atoms: call.operation(atoms, indices))]
    places = places_in_values(source.dim(), indexed_dims(indices), indices)  # nothing is read, but what is has channels
    return [
        tuple(
            one.along({places[dim]: one.atoms.shape[dim] for dim in one.span}, call.outputs[0].dim())
            for one in rest.strips
        )
    ]


def putting(call: Call) -> list[Marks]:
    """Values written where index tensors point."""
    target, indices, values = call.given["self"], call.given["indices"], call.marked(call.given["values"])
    indexed = indexed_dims(indices)
    rest = unindexed(call, target, indexed, "written")
    fix_indices(call, indices)
    places = places_in_values(target.dim(), indexed, indices)
    dims = target.dim() - len(indexed) + index_dims(indices)
    values = values.reshaped((1,) * (dims - len(values.shape)) + values.shape)
    shape = tuple(values.shape[places[dim]] if dim in places else 1 for dim in range(target.dim()))
    if values.marks is None:
        return [call.together(rest, Marked(shape, None)).marks]
    back = {place: dim for dim, place in places.items()}
    laid = []
    for one in values.strips:
        if set(one.span) <= set(back):
            sizes = {back[place]: one.atoms.shape[place] for place in one.span}
            laid.append(one.along(sizes, target.dim()))
        else:
            call.joins.fix([one], f"written by index: {call.what}")
    return [call.together(rest, Marked(shape, tuple(laid))).marks]


def indexed_dims(indices: Sequence[Tensor | None]) -> set[int]:
    """The dimensions that index tensors point into; a mask covers as many as it has."""
    found: set[int] = set()
    dim = 0
    for index in indices:
        covered = index.dim() if index is not None and is_mask(index) else 1
        if index is not None:
            found |= set(range(dim, dim + covered))
        dim += covered
    return found


def is_mask(index: Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def index_dims(indices: Sequence[Tensor | None]) -> int:
    """How many dimensions take the place of those that are indexed."""
    return max(1 if is_mask(index) else index.dim() for index in indices if index is not None)


def places_in_values(dims: int, indexed: set[int], indices: Sequence[Tensor | None]) -> dict[int, int]:
    """Where each dimension that is not indexed lies in what is read or written."""
    first = min(indexed)
    side_by_side = indexed == set(range(first, first + len(indexed)))
    rest = [dim for dim in range(dims) if dim not in indexed]
    before = first if side_by_side else 0  # else the index comes first
    return {dim: place if place < before else place + index_dims(indices) for place, dim in enumerate(rest)}


def unindexed(call: Call, tensor: Tensor, indexed: set[int], how: str) -> Marked:
    """A tensor without what lies along the indexed dimensions, which has to stay."""
    marked = call.marked(tensor)
    call.joins.fix((one for one in marked.strips if indexed & set(one.span)), f"{how} by index: {call.what}")
    across = tuple(one for one in marked.strips if not indexed & set(one.span))
    return Marked(marked.shape, None if marked.marks is None else across)


def fix_indices(call: Call, indices: Sequence[Tensor | None]) -> None:
    for index in indices:
        if index is not None:
            call.joins.fix(call.marked(index).strips, f"used as an index: {call.what}")


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


def writing(call: Call) -> list[Marks]:
    """Rows, or single elements, put or added at an index along one dimension."""
    target, dim = call.given["self"], call.dim(call.given["self"])
    source = call.given.get("source", call.given.get("src"))
    sides = []
    for tensor in (target, source) if isinstance(source, Tensor) else (target,):
        rest = unindexed(call, tensor, {dim}, "written")
        sides.append(Marked(tuple(1 if place == dim else size for place, size in enumerate(rest.shape)), rest.marks))
    if len({side.shape for side in sides}) > 1:  # a part of the target, or of the source
        raise UnforeseenCallError("index")
    return [call.together(*sides).marks]


def filling(call: Call) -> list[Marks]:
    """Values in a row put wherever a mask is set: rows of the last dimension, if both are as long."""
    target, source = call.given["self"], call.given["source"]
    dims, size = target.dim(), target.shape[-1]
    if not source.dim() or source.shape[-1] != size:
        return unknown(call)
    sides = []
    for tensor in (target, source):
        rest = unindexed(call, tensor, set(range(tensor.dim() - 1)), "written")
        rows = tuple(one.along({dims - 1: size}, dims) for one in rest.strips)
        sides.append(Marked((*[1] * (dims - 1), size), None if rest.marks is None else rows))
    return [call.together(*sides).marks]


def selecting(call: Call) -> list[Marks]:
    """Rows by number."""
    source = call.given["self"]
    return [unindexed(call, source, {call.dim(source)}, "read").marks]
