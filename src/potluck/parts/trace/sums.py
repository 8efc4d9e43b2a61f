"""Rules for sums: reductions over dimensions, and products that are summed."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from potluck.parts.trace.call import Call, UnforeseenCallError
from potluck.parts.trace.marks import Marked, Marks, Strip, summed

MATRIX_OPERANDS = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "mv": ("self", "vec"),
    "dot": ("self", "tensor"),
    "vdot": ("self", "other"),
    "addmm": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "addmv": ("mat", "vec"),
}

ALIGNED = 16  # bytes, of which a row of a grouped product has a whole number


def reducing(call: Call) -> list[Marks]:
    """A sum, mean, maximum or norm over dimensions."""
    source = call.tensors[0]
    dims = call.given.get("dim")
    dims = list(range(source.dim())) if dims is None or dims == [] else dims
    gone = [dim % source.dim() for dim in (dims if isinstance(dims, list) else [dims])] if source.dim() else []
    marked = call.marked(source)
    if marked.marks is None:
        return [None] * len(call.outputs)
    kept = summed(call.joins, marked, gone, call.reason)
    return [kept if output.dim() == source.dim() else squeezed(kept, gone) for output in call.outputs]


def squeezed(found: Sequence[Strip], dims: Sequence[int]) -> tuple[Strip, ...]:
    """Strips without dimensions that are gone."""
    return tuple(Strip(one.atoms.squeeze(tuple(dims)), one.pending) for one in found)


def matrix_product(call: Call) -> list[Marks]:
    """Σ_k A_nk B_km, in batches perhaps, with something added perhaps."""
    left, right = (call.marked(call.given[key]) for key in MATRIX_OPERANDS[call.operation.overloadpacket.__name__])
    product = contraction(call, left, right)
    if len(call.tensors) == 3:
        product = call.together(product, call.marked(call.given["self"]))
    return [product.marks]


def linear(call: Call) -> list[Marks]:
    """x Wᵀ + b."""
    weight = call.marked(call.given["weight"])
    turned = Marked(weight.shape[::-1], weight.moved(lambda atoms: atoms.t()))
    sides = [contraction(call, call.marked(call.given["input"]), turned)]
    if isinstance(call.given.get("bias"), Tensor):
        sides.append(call.marked(call.given["bias"]))
    return [call.together(*sides).marks]


def contraction(call: Call, left: Marked, right: Marked) -> Marked:
    """A product element by element in (…, n, k, m), summed over k."""
    vectors = [len(side.shape) == 1 for side in (left, right)]
    if vectors[0]:
        left = left.reshaped((1, *left.shape))
    if vectors[1]:
        right = right.reshaped((*right.shape, 1))
    left = left.reshaped((*left.shape, 1))
    right = right.reshaped((*right.shape[:-2], 1, *right.shape[-2:]))
    product = call.together(left, right)
    over = len(product.shape) - 2
    gone = [over, *([over - 1] if vectors[0] else []), *([over + 1] if vectors[1] else [])]
    shape = tuple(size for dim, size in enumerate(product.shape) if dim not in gone)
    if product.marks is None:
        return Marked(shape, None)
    left_over = tuple(one for one in product.strips if one.inner != over)
    return Marked(shape, squeezed(summed(call.joins, Marked(product.shape, left_over), [over], call.reason), gone))


def trilinear(call: Call) -> list[Marks]:
    """Σ x_1 x_2 x_3, each with dimensions put in, over some dimensions: what bilinear layers are made of."""
    sides = []
    for number in "123":
        marked = call.marked(call.given[f"i{number}"])
        shape = list(marked.shape)
        for dim in sorted(call.given[f"expand{number}"]):
            shape.insert(dim, 1)
        sides.append(marked.reshaped(shape))
    product = call.together(*sides)
    gone = sorted(call.given["sumdim"])
    return [squeezed(summed(call.joins, product, gone, call.reason), gone)]


def grouped_product(call: Call) -> list[Marks]:
    """Rows in groups, each group times a matrix of its own: Σ_k A_nk B_gkm."""
    left, right = call.marked(call.given["self"]), call.marked(call.given["mat2"])
    if len(right.shape) != 3:
        raise UnforeseenCallError("mat2")
    for tensor in (call.given["self"], call.given["mat2"]):
        for one in call.marked(tensor).channels:
            if tensor.stride(one.inner) == 1:
                call.memory.note_multiple(one.atoms, ALIGNED // tensor.element_size())
    if len(left.shape) == 2:
        call.joins.fix((one for one in right.strips if 0 in one.span), f"a matrix for each group: {call.what}")
        matrices = tuple(one for one in right.strips if 0 not in one.span)
        right = Marked(right.shape[1:], None if right.marks is None else squeezed(matrices, [0]))
    return [contraction(call, left, right).marks]


def distances(call: Call) -> list[Marks]:
    """Between every two rows: summed over what the rows hold."""
    left, right = call.marked(call.given["x1"]), call.marked(call.given["x2"])
    turned = Marked((*right.shape[:-2], right.shape[-1], right.shape[-2]), right.moved(lambda atoms: atoms.mT))
    return [contraction(call, left, turned).marks]
