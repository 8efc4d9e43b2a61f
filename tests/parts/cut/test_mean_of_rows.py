"""The mean over holders of clients that were trained at once."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from potluck.core.rows import stacked
from potluck.core.types import Tensors
from potluck.parts.cut.kept import Kept
from potluck.parts.cut.mean import HolderMean
from potluck.parts.cut.plan import Plan

WIDE, CLASSES = 6, 5


def plan_of(channels: int) -> Plan:
    kept, classes = Kept.of(WIDE, range(channels)), Kept.of(CLASSES, range(CLASSES))
    return Plan.of({"w": (kept, Kept.of(2, range(2))), "head": (classes, kept), "bias": (classes,), "count": ()})


def state() -> Tensors:
    return {
        "w": torch.ones(WIDE, 2),
        "head": torch.ones(CLASSES, WIDE),
        "bias": torch.ones(CLASSES),
        "count": torch.tensor(3),
    }


def sent_by(client: int, channels: int) -> Tensors:
    rng = torch.Generator().manual_seed(client)
    shapes = {"w": (channels, 2), "head": (CLASSES, channels), "bias": (CLASSES,)}
    return {
        **{name: torch.randn(shape, generator=rng) for name, shape in shapes.items()},
        "count": torch.tensor(client),
    }


@st.composite
def bundles(draw: st.DrawFn) -> list[tuple[int, list[tuple[float, list[int]]]]]:
    """Clients of a width each, with a weight and labels."""
    member = st.tuples(st.sampled_from([1.0, 2.0, 5.0]), st.lists(st.integers(0, CLASSES - 1), unique=True))
    return draw(st.lists(st.tuples(st.sampled_from([2, 3, 6]), st.lists(member, min_size=1, max_size=4)), max_size=4))


def rows_of(labels: list[int]) -> dict[str, Tensor]:
    return dict.fromkeys(("head", "bias"), torch.tensor(labels, dtype=torch.long))


@given(bundles(), st.booleans())
def test_clients_at_once_count_like_one_after_the_other(
    told: list[tuple[int, list[tuple[float, list[int]]]]], by_label: bool
) -> None:
    at_once, one_by_one = HolderMean(state()), HolderMean(state())
    client = 0
    for channels, members in told:
        plan, sent = plan_of(channels), [sent_by(client + number, channels) for number in range(len(members))]
        client += len(members)
        for row, (weight, labels) in zip(stacked(sent), members, strict=True):
            rows = rows_of(labels) if by_label else None
            at_once.add(row, weight, plan, rows)
            one_by_one.add(dict(row), weight, plan, rows)
    found, expected = at_once.result(), one_by_one.result()
    assert all(torch.allclose(found[name], expected[name], atol=1e-5) for name in expected)


def test_equal_contributions_give_back_the_state_exactly() -> None:
    whole = {
        name: torch.randn(tensor.shape) if tensor.is_floating_point() else tensor for name, tensor in state().items()
    }
    mean = HolderMean(whole)
    for channels, labels in ((6, [0, 2]), (3, [1, 2, 4]), (3, [3])):
        plan = plan_of(channels)
        for row in stacked([plan.take(whole) for _ in range(3)]):
            mean.add(row, 2.5, plan, rows_of(labels))
    assert all(found.equal(whole[name]) for name, found in mean.result().items())


def test_clients_of_a_stack_may_hold_different_parts() -> None:
    """As many channels, but others: a window that every client draws for itself."""
    mean = HolderMean({"w": torch.zeros(WIDE)})
    sent = [{"w": torch.full((2,), value)} for value in (1.0, 3.0, 5.0)]
    for row, start in zip(stacked(sent), (0, 1, 1), strict=True):
        mean.add(row, 1.0, Plan.of({"w": (Kept.of(WIDE, range(start, start + 2)),)}))
    assert mean.result()["w"].tolist() == [1.0, 3.0, 4.0, 0.0, 0.0, 0.0]


def test_what_nobody_holds_stays() -> None:
    mean, plan = HolderMean(state()), plan_of(3)
    for row, labels in zip(stacked([sent_by(0, 3), sent_by(1, 3)]), ([0], [0, 1]), strict=True):
        mean.add(row, 1.0, plan, rows_of(labels))
    found = mean.result()
    for untouched in (found["head"][2:], found["head"][:, 3:], found["w"][3:]):
        assert (untouched == 1).all()
    assert found["bias"][1] == sent_by(1, 3)["bias"][1]
    assert not found["w"][:3].equal(torch.ones(3, 2))
