"""Index plans, and the mean over holders against the slow obvious loop."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from potluck.core.errors import ModelError
from potluck.core.types import Tensors
from potluck.parts.width import HolderMean, Plan, Window, prefix_plan, shapes_of


@dataclass(frozen=True)
class Sent:
    """One client's contribution."""

    tensors: Tensors
    plan: Plan
    weight: float
    rows: dict[str, Tensor]


HEAD, TYPES = "head", [torch.float32, torch.float64, torch.float16, torch.int64]


@st.composite
def federations(draw: st.DrawFn) -> tuple[Tensors, list[Sent]]:
    """A state, and what some clients of random levels send of it; some leave tensors or labels out."""
    rng = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))

    def values(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return (10 * torch.randn(shape, generator=rng)).to(dtype)

    shapes, blocks = {}, {}
    for name in ["body", "more"][: draw(st.integers(0, 2))]:
        parts = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=3))
        shapes[name], blocks[name] = tuple(size * count for size, count in parts), tuple(count for _, count in parts)
    shapes[HEAD] = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    types = {name: draw(st.sampled_from(TYPES)) for name in shapes}
    state = {name: values(shape, types[name]) for name, shape in shapes.items()}
    clients: list[Sent] = []
    for _ in range(draw(st.integers(0, 4))):
        narrow = {
            name: tuple(count * draw(st.integers(1, size // count)) for size, count in zip(shape, parts, strict=True))
            for (name, shape), parts in zip(shapes.items(), [*blocks.values(), (1, 1)], strict=True)
        }
        narrow[HEAD] = (shapes[HEAD][0], narrow[HEAD][1])  # the head keeps a row per class
        sent = [name for name in narrow if draw(st.booleans())]
        labels = sorted(draw(st.sets(st.integers(0, shapes[HEAD][0] - 1))))
        clients.append(
            Sent(
                {name: values(narrow[name], types[name]) for name in sent},
                prefix_plan(shapes, narrow, blocks),
                draw(st.sampled_from([1.0, 3.0, 0.5])),
                {HEAD: torch.tensor(labels, dtype=torch.long)},
            )
        )
    return state, clients


def narrow_place(place: tuple[int, ...], windows: tuple[Window, ...]) -> tuple[int, ...] | None:
    """Where a scalar of the wide tensor lies in the narrow one: the same place of the same block, if that is kept."""
    found = []
    for at, window in zip(place, windows, strict=True):
        block, within = divmod(at, window.size // window.blocks)
        kept = window.kept // window.blocks
        if within >= kept:
            return None
        found.append(block * kept + within)
    return tuple(found)


def slow_mean(state: Tensors, clients: list[Sent]) -> Tensors:
    """Scalar by scalar: ask every client whether it holds it."""
    result = {name: tensor.clone() for name, tensor in state.items()}
    for name, tensor in state.items():
        for place in itertools.product(*(range(size) for size in tensor.shape)):
            total = weight = 0.0
            for client in clients:
                there = narrow_place(place, client.plan.windows[name])
                absent = name == HEAD and place[0] not in client.rows[HEAD].tolist()
                if name in client.tensors and there is not None and not absent:
                    total += client.weight * float(client.tensors[name][there])
                    weight += client.weight
            if weight:
                mean = total / weight
                result[name][place] = mean if tensor.is_floating_point() else round(mean)
    return result


def fast_mean(state: Tensors, clients: list[Sent]) -> Tensors:
    mean = HolderMean(state)
    for client in clients:
        mean.add(client.tensors, client.plan, client.weight, client.rows)
    return mean.result()


@settings(deadline=None, max_examples=150)
@given(federations())
def test_the_mean_over_holders_is_the_slow_loops(federation: tuple[Tensors, list[Sent]]) -> None:
    state, clients = federation
    before = {name: tensor.clone() for name, tensor in state.items()}
    fast, slow = fast_mean(state, clients), slow_mean(state, clients)
    assert set(fast) == set(state)
    for name, tensor in state.items():
        assert fast[name].dtype == tensor.dtype
        torch.testing.assert_close(fast[name], slow[name])
        assert torch.equal(tensor, before[name])


@settings(deadline=None)
@given(federations())
def test_nothing_changes_when_all_send_what_they_were_given(federation: tuple[Tensors, list[Sent]]) -> None:
    state, clients = federation
    state = {name: tensor if tensor.dtype != torch.float64 else tensor.float() for name, tensor in state.items()}
    unchanged = [
        Sent({n: t for n, t in c.plan.take(state).items() if n in c.tensors}, c.plan, c.weight, c.rows) for c in clients
    ]
    after = fast_mean(state, unchanged)
    assert all(torch.equal(after[name], state[name]) for name in state)


def test_overlapping_windows_by_hand() -> None:
    state = {"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    wide, narrow = {"w": (2, 2)}, {"w": (1, 2)}
    mean = HolderMean(state)
    mean.add({"w": torch.tensor([[10.0, 20.0], [30.0, 40.0]])}, prefix_plan(wide, wide))
    mean.add({"w": torch.tensor([[50.0, 60.0]])}, prefix_plan(wide, narrow), weight=3)
    assert mean.result()["w"].tolist() == [[40.0, 50.0], [30.0, 40.0]]


def test_what_nobody_held_keeps_its_value() -> None:
    state = {"w": torch.tensor([1.0, 2.0, 3.0]), "other": torch.tensor([5.0])}
    mean = HolderMean(state)
    mean.add({"w": torch.tensor([9.0])}, prefix_plan({"w": (3,)}, {"w": (1,)}))
    assert {name: tensor.tolist() for name, tensor in mean.result().items()} == {"w": [9.0, 2.0, 3.0], "other": [5.0]}


def test_a_client_counts_with_its_rows_only() -> None:
    state = {"w": torch.zeros(3, 2), "b": torch.zeros(3)}
    plan = prefix_plan({"w": (3, 2), "b": (3,)}, {"w": (3, 1), "b": (3,)})
    rows = dict.fromkeys(["w", "b"], torch.tensor([0, 2]))
    mean = HolderMean(state)
    mean.add({"w": torch.full((3, 1), 4.0), "b": torch.full((3,), 6.0)}, plan, rows=rows)
    assert mean.result()["w"].tolist() == [[4.0, 0.0], [0.0, 0.0], [4.0, 0.0]]
    assert mean.result()["b"].tolist() == [6.0, 0.0, 6.0]


def test_a_plan_takes_views_of_the_first_indices() -> None:
    wide = {"w": torch.arange(12.0).view(3, 4), "n": torch.tensor(7)}
    plan = prefix_plan(shapes_of(wide), {"w": (2, 3), "n": ()})
    taken = plan.take(wide)
    assert taken["w"].tolist() == [[0.0, 1.0, 2.0], [4.0, 5.0, 6.0]]
    assert taken["n"].item() == 7
    assert plan.narrowed == {"w"}
    wide["w"][0, 0] = 99
    assert taken["w"][0, 0] == 99  # nothing was copied


def test_a_network_with_other_layers_at_another_width_is_refused() -> None:
    with pytest.raises(ModelError, match=r"\['extra', 'gone'\] exist at one width only"):
        prefix_plan({"w": (2,), "gone": (2,)}, {"w": (2,), "extra": (1,)})


@pytest.mark.parametrize("narrow", [(3, 1), (2, 5), (2,), (2, 2, 1)])
def test_a_tensor_that_is_no_part_of_the_wide_one_is_refused(narrow: tuple[int, ...]) -> None:
    with pytest.raises(ModelError) as caught:
        prefix_plan({"layer.w": (2, 4)}, {"layer.w": narrow})
    assert str(caught.value) == f"'layer.w' has shape {narrow} in the narrow network: no part of the wide one's (2, 4)"


def test_of_a_dimension_in_blocks_the_first_of_every_block_are_kept() -> None:
    wide = {"gates": torch.arange(8.0).view(8, 1) + torch.tensor([0.0, 0.5])}
    plan = prefix_plan({"gates": (8, 2)}, {"gates": (4, 1)}, {"gates": (2, 1)})
    assert plan.take(wide)["gates"].tolist() == [[0.0], [1.0], [4.0], [5.0]]
    mean = HolderMean(wide)
    mean.add({"gates": torch.full((4, 1), 9.0)}, plan)
    assert mean.result()["gates"][:, 0].tolist() == [9.0, 9.0, 2.0, 3.0, 9.0, 9.0, 6.0, 7.0]
    assert torch.equal(mean.result()["gates"][:, 1], wide["gates"][:, 1])


@pytest.mark.parametrize(("wide", "narrow"), [((8, 2), (3, 2)), ((7, 2), (4, 2))])
def test_blocks_that_cannot_be_cut_evenly_are_refused(wide: tuple[int, ...], narrow: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match=rf"'gates' has {wide[0]} channels in 2 blocks .* {narrow[0]} cannot be kept"):
        prefix_plan({"gates": wide}, {"gates": narrow}, {"gates": (2, 1)})
