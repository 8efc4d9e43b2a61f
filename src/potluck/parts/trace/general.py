"""Rules for operations on elements and dimensions: arithmetic, views, pieces, concatenation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from potluck.parts.trace.call import Call, UnforeseenCallError
from potluck.parts.trace.marks import FIXED, FREE, Marked, Marks, Strip, free_along, lively, strip, strips


def unknown(call: Call) -> list[Marks]:
    """No rule: everything it meets has to stay."""
    for tensor in call.tensors:
        call.joins.fix(call.marked(tensor).strips, f"nothing is known about {call.what}")
    return [()] * len(call.outputs)


def pointwise(call: Call) -> list[Marks]:
    """Element by element, with broadcasting."""
    return [call.together(*map(call.marked, call.tensors)).marks] * len(call.outputs)


def same_shape(call: Call) -> list[Marks]:
    """Mixes along dimensions but leaves each as long as it was, like softmax; those that it does not leave stay."""
    source = call.tensors[0]
    marked = call.marked(source)
    if any(output.dim() != source.dim() for output in call.outputs):
        return unknown(call)
    changed = {dim for output in call.outputs for dim in range(source.dim()) if output.shape[dim] != source.shape[dim]}
    call.joins.fix((one for one in marked.strips if changed & set(one.span)), f"nothing is known about {call.what}")
    return [None if marked.marks is None else tuple(o for o in marked.strips if not changed & set(o.span))] * len(
        call.outputs
    )


def fresh(call: Call) -> list[Marks]:
    """Made on the spot: its sizes come from nothing that is marked."""
    return [None] * len(call.outputs)


def restriding(call: Call) -> list[Marks]:
    """Another view of the same memory: windows, or only another order."""
    source, output = call.given["self"], call.outputs[0]
    marked = call.marked(source)
    if marked.shape == tuple(output.shape):
        return [marked.marks]
    if output is source:  # its old strides are gone
        return unknown(call)
    return [strips(Strip(relaid(one.atoms, source, output, FIXED), one.pending) for one in marked.strips)]


def relaid(atoms: Tensor, here: Tensor, there: Tensor, elsewhere: int) -> Tensor:
    """The atoms of one tensor as they lie in another that shares its memory."""
    if here.dtype != there.dtype:
        raise UnforeseenCallError("dtype")
    for dim in range(here.dim()):
        if here.stride(dim) == 0:  # repeated without being there more than once
            here, atoms = here.narrow(dim, 0, min(1, here.shape[dim])), atoms.narrow(dim, 0, 1)
    cells = atoms.new_full((here.untyped_storage().nbytes() // here.element_size(),), elsewhere)
    try:
        cells.as_strided(here.shape, here.stride(), here.storage_offset()).copy_(atoms.expand(here.shape))
        return cells.as_strided(there.shape, there.stride(), there.storage_offset())
    except RuntimeError as error:  # windows over windows, or numbers of another size
        raise UnforeseenCallError("stride") from error


def copying(call: Call) -> list[Marks]:
    """Into a tensor, or into a part of one."""
    return [call.together(call.marked(call.given["self"]), call.marked(call.given["src"])).marks]


def write_through(call: Call, target: Tensor, marks: Marks) -> None:
    """What is written into a part of a tensor that was made on the spot, such as a list of states, is in that, too."""
    for base in call.memory.bases(target) if marks else ():
        laid = strips(Strip(relaid(one.atoms, target, base, FREE), one.pending) for one in marks or ())
        shape = tuple(
            size if any(dim in one.span for one in laid) else 1 for dim, size in enumerate(base.shape)
        )  # elsewhere it may be anything
        call.memory.mark(base, call.together(call.marked(base), Marked(shape, laid)).marks)


def reshaping(call: Call) -> list[Marks]:
    """A view with other sizes."""
    output = call.outputs[0]
    if output.numel() != call.given["self"].numel():  # another type, with more or fewer bytes per number
        return unknown(call)
    marked = call.marked(call.given["self"])
    if marked.marks is None:
        return [None]
    after = {one: viewed(one, marked.shape, tuple(output.shape)) for one in marked.strips}
    found = {one: moved for one, moved in after.items() if moved is not None}
    for one, moved in found.items():
        if output.dim() > len(marked.shape) and one_head(moved, output.shape):
            call.memory.note_heads(moved.atoms)
        beside = [each for each in found if found[each].inner == moved.inner and one.inner != each.inner]
        if any(not each.free for each in beside):
            call.memory.note_merged(one.atoms)
    return [tuple(found.values())]


def viewed(one: Strip, before: tuple[int, ...], after: tuple[int, ...]) -> Strip | None:
    """A strip in a view; what is empty has elements meanwhile, so that channels can be followed through it."""
    whole = math.lcm(math.prod(lively(before)), math.prod(lively(after)))
    atoms = one.atoms.expand(filled(before, whole)).reshape(filled(after, whole))
    for dim, size in enumerate(after):
        atoms = atoms if size else atoms.narrow(dim, 0, 1)
    return strip(atoms, one.pending)


def filled(shape: tuple[int, ...], whole: int) -> list[int]:
    """A shape with so many elements, as far as its first empty dimension can hold them."""
    sizes = list(lively(shape))
    if 0 in shape:
        sizes[shape.index(0)] = whole // math.prod(sizes)
    return sizes


def one_head(one: Strip, shape: Sequence[int]) -> bool:
    """Whether channels lie behind a dimension of size 1, as those of a single head do."""
    return one.span == (one.inner,) and one.inner > 0 and shape[one.inner - 1] == 1 and one.pending is None


def moving(call: Call) -> list[Marks]:
    """Only moves elements: the same operation moves the atoms."""
    first, source = next(iter(call.given.items()))
    marked = call.marked(source)
    if marked.marks is None:
        return [None] * len(call.outputs)
    moved: list[list[Strip]] = [[] for _ in call.outputs]
    for one in marked.strips:
        result = call.operation(**{**call.given, first: one.atoms.expand(lively(marked.shape))})
        for place, atoms in zip(moved, result if isinstance(result, list | tuple) else [result], strict=True):
            place.append(loose_piece(one, atoms) or Strip(atoms, one.pending))
    return [strips(found) for found in moved]


def loose_piece(one: Strip, piece: Tensor) -> Strip | None:
    """A piece of a strip in which no channel is known: it is as long as need be."""
    if one.free or piece.dim() != one.atoms.dim() or piece.shape[one.inner] < 2 or bool((piece >= 0).any()):
        return None
    return free_along(one.inner, piece.shape[one.inner], piece.dim())


def expanding(call: Call) -> list[Marks]:
    """Repeated along dimensions of size 1: as often as need be."""
    source, output = call.given["self"], call.outputs[0]
    (marks,) = moving(call)
    if marks is None:
        return [None]
    before = (1,) * (output.dim() - source.dim()) + tuple(source.shape)
    longer = [dim for dim, size in enumerate(output.shape) if before[dim] == 1 and size > 1]
    return [(*marks, *(free_along(dim, output.shape[dim], output.dim()) for dim in longer))]


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
        call.memory.note_slice(source, dim, (start, piece))
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
    atoms = next((one.atoms for one in (*part.channels, *part.strips) if one.inner == inner), nothing)
    return atoms.expand([part.shape[dim] if place == dim else size for place, size in enumerate(atoms.shape)])


def stacking(call: Call) -> list[Marks]:
    """Concatenation along a new dimension."""
    dim = call.dim(call.outputs[0])
    joined = call.together(*map(call.marked, call.given["tensors"]))
    if joined.marks is None:
        return [None]
    return [tuple(Strip(one.atoms.unsqueeze(dim), one.pending) for one in joined.strips)]
