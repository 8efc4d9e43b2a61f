"""Which scalars a mean has holders for: those in somebody's part, and no others."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.means import NameMean
from potluck.parts.cut.kept import Kept
from potluck.parts.cut.mean import HolderMean
from potluck.parts.cut.plan import Plan

SHAPES = st.lists(st.integers(1, 5), min_size=0, max_size=4)


@given(SHAPES, st.data())
def test_it_is_what_parts_and_rows_say(shape: list[int], data: st.DataObject) -> None:
    state = {"w": torch.zeros(shape)}
    mean, expected = HolderMean(state), torch.zeros(shape, dtype=torch.bool)
    for _ in range(data.draw(st.integers(0, 3))):
        kept = [data.draw(st.sets(st.integers(0, size - 1), min_size=1)) for size in shape]
        plan = Plan.of({"w": tuple(Kept.of(size, sorted(own)) for size, own in zip(shape, kept, strict=True))})
        rows = data.draw(st.none() | st.sets(st.integers(0, len(kept[0]) - 1))) if shape else None
        sent = torch.ones([len(own) for own in kept])
        chosen = None if rows is None else {"w": torch.tensor(sorted(rows), dtype=torch.long)}
        mean.add({"w": sent}, plan=plan, rows=chosen)
        if rows is not None:
            kept[0] = {sorted(kept[0])[row] for row in rows}
        where = torch.ones(shape, dtype=torch.bool)
        for dim, own in enumerate(kept):
            inside = torch.tensor([at in own for at in range(shape[dim])])
            where &= inside.view([-1 if at == dim else 1 for at in range(len(shape))])
        expected |= where
    mean.result()
    assert mean.held("w").expand(shape).equal(expected)


def test_a_mean_by_name_has_whole_tensors() -> None:
    mean = NameMean({"a": torch.zeros(2), "b": torch.zeros(2)})
    mean.add({"a": torch.ones(2)})
    assert mean.held("a")
    assert not mean.held("b")
