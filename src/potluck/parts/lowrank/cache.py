"""The decompositions of a server's layers: one serves every level, until the weight changes.

A randomised decomposition starts from the right singular vectors of the previous weight, which are part of the
server's state: the result depends on the state alone, so a resumed run finds the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from torch import Tensor

from potluck.core.names import placed
from potluck.core.random import stream
from potluck.core.threads import in_parallel
from potluck.core.types import Context, Tensors
from potluck.parts.lowrank.approximate import approximate
from potluck.parts.lowrank.decompose import Decomposition, decompose
from potluck.parts.lowrank.layers import Unrolled

KEPT = "kept"  # the place of what a server keeps to itself

Make = Callable[[str, Tensor], Decomposition]


def subspace_name(layer: str) -> str:
    """The name of the right singular vectors that the next decomposition starts from."""
    return placed(KEPT, f"subspace/{layer}")


def decompositions(
    state: Tensors, layers: Mapping[str, Unrolled], names: Iterable[str], make: Make, ctx: Context
) -> dict[str, Decomposition]:
    """The decomposition of every named layer's weight; reused unless weight or start changed."""
    wanted = {name: (state[f"{name}.weight"], state.get(subspace_name(name))) for name in names}
    stale = [name for name, made_of in wanted.items() if not ctx.memo.knows((decompositions, name), made_of)]
    stale.sort(key=lambda name: -wanted[name][0].numel())  # no thread waits for the largest at the end
    made = in_parallel(lambda name: make(name, layers[name].matrix(wanted[name][0])), stale)
    fresh = dict(zip(stale, made, strict=True))
    return {
        name: ctx.memo.latest((decompositions, name), made_of, lambda name=name: fresh[name])  # type: ignore[misc]
        for name, made_of in wanted.items()
    }


def exactly(name: str, matrix: Tensor) -> Decomposition:
    """The whole decomposition; nothing from before is needed."""
    return decompose(matrix)


def randomised(state: Tensors, ranks: Mapping[str, Sequence[int]], error: float, seed: int) -> Make:
    """Decompositions as far as these ranks, within an error of the best; exact ones where that cannot be shown."""

    def make(name: str, matrix: Tensor) -> Decomposition:
        found = None
        if len(matrix) == 1:
            start = state.get(subspace_name(name))
            found = approximate(matrix[0], ranks[name], start, error, stream(seed, "subspace", name))
        return decompose(matrix) if found is None else stacked(found)

    return make


def stacked(found: Decomposition) -> Decomposition:
    """The decomposition of one matrix as that of a stack of one."""
    return Decomposition(*(side[None] for side in (found.left, found.right, found.values, found.energy)))


def subspaces(decomposed: Mapping[str, Decomposition], ranks: Mapping[str, Sequence[int]]) -> Tensors:
    """The right singular vectors to start from next time, as many as the largest rank and a few more."""
    return {
        subspace_name(name): found.right[0, :, : max(ranks[name]) + max(ranks[name]) // 8 + 8].clone()
        for name, found in decomposed.items()
        if len(found.right) == 1
    }
