"""Index plans, and the mean over holders against the slow obvious loop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_by_size import prefix_plan
from torch import Tensor

from potluck.core import tensors as tensors_module
from potluck.core.errors import ModelError
from potluck.core.means import NameMean
from potluck.core.types import Tensors
from potluck.parts.cut import holders as holders_module
from potluck.parts.cut import kept as kept_module
from potluck.parts.cut.choice import Block, Disjoint, Prefix, Rolling
from potluck.parts.cut.kept import Kept
from potluck.parts.cut.mean import HolderMean
from potluck.parts.cut.plan import Plan, shapes_of


@dataclass(frozen=True)
class Sent:
    """One client's contribution."""

    tensors: Tensors
    plan: Plan
    weight: float
    rows: dict[str, Tensor]


HEAD, TYPES = "head", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64]
TOLERANCE = {  # of values around 10 and four clients: some units in the last place
    torch.float32: 1e-5,
    torch.float64: 1e-13,
    torch.float16: 2e-3,
    torch.bfloat16: 2e-2,
    torch.int64: 0,
}
CHUNKS = st.sampled_from([1, 7, 1 << 17])


@st.composite
def index_sets(draw: st.DrawFn, size: int) -> Kept:
    """Any indices, a window that may wrap, or the same window in equal blocks."""
    blocks = draw(st.sampled_from([parts for parts in range(1, size + 1) if size % parts == 0]))
    within = size // blocks
    rule = draw(st.sampled_from(["any", "prefix", "rolling", "disjoint"]))
    if rule == "any":
        return Kept.of(size, sorted(draw(st.sets(st.integers(0, size - 1)))))
    choice = {
        "prefix": Prefix(),
        "rolling": Rolling(draw(st.integers(0, 20))),
        "disjoint": Disjoint(draw(st.integers(0, 2)), 3),
    }[rule]
    picked = list(choice(Block(tuple(range(within))), draw(st.integers(0, within))))
    return Kept.of(size, [within * block + at for block in range(blocks) for at in picked])


@st.composite
def federations(draw: st.DrawFn) -> tuple[Tensors, list[Sent]]:
    """A state, and what some clients send of it; some leave tensors or labels out."""
    rng = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))

    def values(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return (10 * torch.randn(shape, generator=rng)).to(dtype)

    shapes = {name: tuple(draw(st.lists(st.sampled_from([1, 2, 3, 12]), max_size=3))) for name in ("body", "more")}
    shapes[HEAD] = (draw(st.integers(1, 12)), draw(st.integers(1, 4)))
    types = {name: draw(st.sampled_from(TYPES)) for name in shapes}
    clients: list[Sent] = []
    for _ in range(draw(st.integers(0, 4))):
        cuts = {name: tuple(draw(index_sets(size)) for size in shape) for name, shape in shapes.items()}
        cuts[HEAD] = (Kept.of(shapes[HEAD][0], range(shapes[HEAD][0])), cuts[HEAD][1])  # a row per class
        plan = Plan.of(cuts)
        sent = [name for name in shapes if draw(st.booleans())]
        labels = draw(st.lists(st.integers(0, shapes[HEAD][0] - 1), unique=True))
        clients.append(
            Sent(
                {name: values(plan.shapes[name], types[name]) for name in sent},
                plan,
                draw(st.sampled_from([1.0, 3.0, 0.1])),
                {HEAD: torch.tensor(labels, dtype=torch.long)},
            )
        )
    return {name: values(shape, types[name]) for name, shape in shapes.items()}, clients


def narrow_place(place: tuple[int, ...], cut: tuple[Kept, ...]) -> tuple[int, ...] | None:
    """Where a scalar of the wide tensor lies in the narrow one, if it is kept."""
    lists = [[at for run in kept.runs for at in range(*run)] for kept in cut]
    if all(at in kept for at, kept in zip(place, lists, strict=True)):
        return tuple(kept.index(at) for at, kept in zip(place, lists, strict=True))
    return None


def places(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(size) for size in shape)))


def slow_mean(state: Tensors, clients: list[Sent]) -> Tensors:
    """Scalar by scalar: ask every client whether it holds it."""
    result = {name: tensor.clone() for name, tensor in state.items()}
    for name, tensor in state.items():
        for place in places(tuple(tensor.shape)):
            total = weight = 0.0
            for client in clients:
                there = narrow_place(place, client.plan[name])
                absent = name == HEAD and place[0] not in client.rows[HEAD].tolist()
                if name in client.tensors and there is not None and not absent:
                    total += client.weight * float(client.tensors[name][there])
                    weight += client.weight
            if weight:
                mean = total / weight
                result[name][place] = mean if tensor.is_floating_point() else round(mean)
    return result


@contextmanager
def in_pieces_of(chunk: int) -> Iterator[None]:
    """As if there were threads that nothing larger may be divided among."""
    with (
        patch.object(tensors_module, "CHUNK", chunk),
        patch.object(kept_module, "GATHERED", chunk),
        patch.object(holders_module, "MANY", min(chunk, 8)),
        patch.object(torch, "get_num_threads", lambda: 2),
    ):
        yield


def fast_mean(state: Tensors, clients: list[Sent]) -> Tensors:
    mean = HolderMean(state)
    for client in clients:
        mean.add(client.tensors, client.weight, client.plan, client.rows)
    return mean.result()


@settings(deadline=None, max_examples=150)
@given(federations(), CHUNKS)
def test_the_mean_over_holders_is_the_slow_loops(federation: tuple[Tensors, list[Sent]], chunk: int) -> None:
    state, clients = federation
    inputs = [state, *(client.tensors for client in clients)]
    before = [{name: tensor.clone() for name, tensor in tensors.items()} for tensors in inputs]
    with in_pieces_of(chunk):
        fast = fast_mean(state, clients)
    slow = slow_mean(state, clients)
    assert set(fast) == set(state)
    for name, tensor in state.items():
        assert fast[name].dtype == tensor.dtype
        torch.testing.assert_close(fast[name], slow[name], rtol=TOLERANCE[tensor.dtype], atol=TOLERANCE[tensor.dtype])
    for tensors, copies in zip(inputs, before, strict=True):
        assert all(torch.equal(tensors[name], copies[name]) for name in copies)


@settings(deadline=None, max_examples=150)
@given(federations())
def test_taking_is_the_slow_loops(federation: tuple[Tensors, list[Sent]]) -> None:
    state, clients = federation
    for client in clients:
        taken = client.plan.take(state)
        for name, tensor in state.items():
            assert tuple(taken[name].shape) == client.plan.shapes[name]
            held = [
                place for place in places(tuple(tensor.shape)) if narrow_place(place, client.plan[name]) is not None
            ]
            assert taken[name].flatten().tolist() == [tensor[place].item() for place in held]
            assert (name in client.plan.narrowed) == (len(held) < tensor.numel())


@settings(deadline=None)
@given(federations(), st.lists(st.floats(1e-3, 1e6), min_size=4, max_size=4), st.booleans(), CHUNKS)
def test_equal_contributions_give_back_their_value_exactly(
    federation: tuple[Tensors, list[Sent]], weights: list[float], trained: bool, chunk: int
) -> None:
    state, clients = federation
    state = {name: tensor if tensor.dtype != torch.float64 else tensor.float() for name, tensor in state.items()}
    rng = torch.Generator().manual_seed(1)
    common = {
        name: torch.randn(tensor.shape, generator=rng).to(tensor.dtype) if trained else tensor
        for name, tensor in state.items()
    }
    alike = [
        Sent({name: t for name, t in c.plan.take(common).items() if name in c.tensors}, c.plan, weight, c.rows)
        for c, weight in zip(clients, weights, strict=False)
    ]
    with in_pieces_of(chunk):
        after = fast_mean(state, alike)
    for name, old in state.items():
        held = slow_held(name, old, alike)
        assert torch.equal(after[name], torch.where(held, common[name], old))


def slow_held(name: str, tensor: Tensor, clients: list[Sent]) -> Tensor:
    """Which scalars anybody holds."""
    held = torch.zeros(tensor.shape, dtype=torch.bool)
    for place in places(tuple(tensor.shape)):
        held[place] = any(
            name in client.tensors
            and narrow_place(place, client.plan[name]) is not None
            and (name != HEAD or place[0] in client.rows[HEAD].tolist())
            for client in clients
        )
    return held


@given(st.integers(1, 300), st.floats(1e-3, 1e3), st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_any_number_of_equal_clients_changes_nothing(clients: int, weight: float, value: float) -> None:
    mean = HolderMean({"w": torch.zeros(1)})
    for number in range(clients):
        mean.add({"w": torch.tensor([value])}, weight * (1 + number % 3), prefix_plan({"w": (1,)}, {"w": (1,)}))
    assert mean.result()["w"].item() == value


def test_the_error_stays_small_with_many_clients() -> None:
    rng = torch.Generator().manual_seed(0)
    plan, sent = prefix_plan({"w": (50,)}, {"w": (50,)}), torch.randn(1000, 50, generator=rng)
    mean = HolderMean({"w": torch.zeros(50)})
    for values in sent:
        mean.add({"w": values}, plan=plan)
    assert float((mean.result()["w"] - sent.double().mean(0)).abs().max()) < 1000**0.5 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("old", [float("nan"), float("inf"), -3e38])
def test_the_first_value_replaces_any_old_one(old: float) -> None:
    mean = HolderMean({"w": torch.full((1, 4), old)})
    narrow, wide = (prefix_plan({"w": (1, 4)}, {"w": (1, kept)}) for kept in (2, 4))
    mean.add({"w": torch.full((1, 2), 1.0)}, plan=narrow)
    mean.add({"w": torch.full((1, 4), 3e38)}, plan=wide)
    assert torch.equal(mean.result()["w"], torch.tensor([[1.5e38, 1.5e38, 3e38, 3e38]]))


@pytest.mark.parametrize("shape", [(601, 701), (2, 70_001), (140_003,)])
def test_the_number_of_threads_does_not_show(shape: tuple[int, ...]) -> None:
    state, rng = {"w": torch.zeros(shape)}, torch.Generator().manual_seed(0)
    narrower = [shape, tuple(size - size // 3 for size in shape), (*shape[:-1], shape[-1] // 2), shape]
    plans = [prefix_plan({"w": shape}, {"w": kept}) for kept in narrower]
    sent = [{"w": torch.randn(plan.shapes["w"], generator=rng)} for plan in plans]
    results, threads = [], torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            mean = HolderMean(state)
            for tensors, plan in zip(sent, plans, strict=True):
                mean.add(tensors, 0.3, plan)
            results.append(mean.result()["w"])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


def test_whole_tensors_are_averaged_as_fedavg_does_bit_for_bit() -> None:
    rng = torch.Generator().manual_seed(0)
    state, plan = {"w": torch.zeros(37, 53)}, prefix_plan({"w": (37, 53)}, {"w": (37, 53)})
    sent = [({"w": torch.randn(37, 53, generator=rng)}, weight) for weight in (3.0, 0.1, 7.0)]
    planned, unplanned, by_name = HolderMean(state), HolderMean(state), NameMean(state)
    for tensors, weight in sent:
        planned.add(tensors, weight, plan)
        unplanned.add(tensors, weight)
        by_name.add(tensors, weight)
    assert torch.equal(planned.result()["w"], by_name.result()["w"])
    assert torch.equal(unplanned.result()["w"], by_name.result()["w"])


def test_a_client_without_weight_is_not_counted() -> None:
    mean = HolderMean({"w": torch.tensor([7.0])})
    mean.add({"w": torch.tensor([1.0])}, 0, prefix_plan({"w": (1,)}, {"w": (1,)}))
    assert mean.result()["w"].tolist() == [7.0]


def test_what_nobody_held_keeps_its_bits() -> None:
    state = {"w": torch.tensor([float("nan"), -0.0, 1e-45]), "n": torch.tensor([1, 2**62 + 1])}
    mean = HolderMean(state)
    plan = Plan.of({"w": (Kept.of(3, []),), "n": (Kept.of(2, [0]),)})
    mean.add({"w": torch.zeros(0), "n": torch.tensor([5])}, plan=plan)
    assert torch.equal(mean.result()["w"].view(torch.int32), state["w"].view(torch.int32))
    assert mean.result()["n"].tolist() == [5, 2**62 + 1]


def test_runs_of_indices() -> None:
    kept = Kept.of(9, [0, 1, 4, 6, 7, 8])
    assert kept.runs == ((0, 2), (4, 5), (6, 9))
    assert (kept.count, kept.whole) == (6, False)
    assert Kept.of(3, range(3)) == Kept(3, ((0, 3),))
    assert Kept.of(3, range(3)).whole
    assert Kept.of(3, []).count == 0


def test_single_runs_are_views_and_whole_tensors_themselves() -> None:
    wide = {"w": torch.arange(12.0).view(3, 4), "whole": torch.ones(2)}
    taken = Plan.of({"w": (Kept.of(3, [1, 2]), Kept.of(4, [1, 2])), "whole": (Kept.of(2, [0, 1]),)}).take(wide)
    assert taken["w"].tolist() == [[5.0, 6.0], [9.0, 10.0]]
    assert taken["whole"] is wide["whole"]
    wide["w"][1, 1] = 99
    assert taken["w"][0, 0] == 99


def test_plans_that_cut_alike_are_equal_and_may_know_more_or_less_than_is_asked() -> None:
    cuts = {"w": (Kept.of(4, [0, 2]),), "n": ()}
    plan = Plan.of(cuts)
    assert {plan: 1}[Plan.of(dict(cuts))] == 1
    assert plan["w"] == cuts["w"]
    assert plan.take({"n": torch.tensor(3)}) == {"n": torch.tensor(3)}
    assert plan.take({"n": torch.tensor(3), "more": torch.tensor(4)}) == {"n": torch.tensor(3)}
    assert (plan.shapes, plan.narrowed) == ({"w": (2,), "n": ()}, {"w"})


def test_overlapping_windows_by_hand() -> None:
    state = {"w": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    wide, narrow = {"w": (2, 2)}, {"w": (1, 2)}
    mean = HolderMean(state)
    mean.add({"w": torch.tensor([[10.0, 20.0], [30.0, 40.0]])}, plan=prefix_plan(wide, wide))
    mean.add({"w": torch.tensor([[50.0, 60.0]])}, 3, prefix_plan(wide, narrow))
    assert mean.result()["w"].tolist() == [[40.0, 50.0], [30.0, 40.0]]


def test_what_nobody_held_keeps_its_value() -> None:
    state = {"w": torch.tensor([1.0, 2.0, 3.0]), "other": torch.tensor([5.0])}
    mean = HolderMean(state)
    mean.add({"w": torch.tensor([9.0])}, plan=prefix_plan({"w": (3,)}, {"w": (1,)}))
    assert {name: tensor.tolist() for name, tensor in mean.result().items()} == {"w": [9.0, 2.0, 3.0], "other": [5.0]}


def test_a_client_counts_with_its_rows_only() -> None:
    state = {"w": torch.zeros(3, 2), "b": torch.zeros(3)}
    plan = prefix_plan({"w": (3, 2), "b": (3,)}, {"w": (3, 1), "b": (3,)})
    rows = dict.fromkeys(["w", "b"], torch.tensor([0, 2]))
    mean = HolderMean(state)
    mean.add({"w": torch.full((3, 1), 4.0), "b": torch.full((3,), 6.0)}, plan=plan, rows=rows)
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
    mean.add({"gates": torch.full((4, 1), 9.0)}, plan=plan)
    assert mean.result()["gates"][:, 0].tolist() == [9.0, 9.0, 2.0, 3.0, 9.0, 9.0, 6.0, 7.0]
    assert torch.equal(mean.result()["gates"][:, 1], wide["gates"][:, 1])


@pytest.mark.parametrize(("wide", "narrow"), [((8, 2), (3, 2)), ((7, 2), (4, 2))])
def test_blocks_that_cannot_be_cut_evenly_are_refused(wide: tuple[int, ...], narrow: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match=rf"'gates' has {wide[0]} channels in 2 blocks .* {narrow[0]} cannot be kept"):
        prefix_plan({"gates": wide}, {"gates": narrow}, {"gates": (2, 1)})
