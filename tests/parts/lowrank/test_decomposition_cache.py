"""Decompositions of a server's layers: made once, made again only where needed, and the same bits anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from potluck.core.networks import ByWidth
from potluck.core.random import stream
from potluck.core.threads import one_thread
from potluck.core.types import Context, Task, Tensors
from potluck.parts.lowrank.cache import KEPT, decompositions, exactly, randomised, subspace_name, subspaces
from potluck.parts.lowrank.decompose import Decomposition, decompose
from potluck.parts.lowrank.layers import Unrolled

SIZE = 120
SHAPES = {
    "conv": Unrolled.of(nn.Conv2d(3, 4, 3)),
    "groups": Unrolled.of(nn.Conv2d(4, 4, 3, groups=2)),
    "line": Unrolled.of(nn.Linear(SIZE, SIZE)),
}
RANKS = {"line": [4, 8], "groups": [1]}
PARTS = ("left", "right", "values", "energy")


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def context() -> Context:
    example = (torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))
    return Context(Task(ByWidth(lambda width: nn.Linear(1, 1)), (), 2, {}, example), 0, seed=1)


def random(*shape: int, key: object = 0) -> Tensor:
    return torch.randn(*shape, generator=stream(0, shape, key))


def falling(ratio: float = 0.8, key: object = 0) -> Tensor:
    """A matrix whose singular values fall by a ratio each."""
    left, right = (torch.linalg.qr(random(SIZE, SIZE, key=(key, side))).Q for side in (0, 1))
    return (left * ratio ** torch.arange(SIZE)) @ right


def state() -> Tensors:
    return {
        "conv.weight": random(4, 3, 3, 3),
        "groups.weight": random(4, 2, 3, 3),
        "line.weight": falling(),
        "conv.bias": random(4),
    }


def same(one: Decomposition, two: Decomposition) -> bool:
    return all(torch.equal(getattr(one, part), getattr(two, part)) for part in PARTS)


class Counted:
    """Makes decompositions and counts them."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()

    def __call__(self, name: str, matrix: Tensor) -> Decomposition:
        self.made[name] += 1
        return decompose(matrix)


# ---- made once ----


def test_every_level_is_served_by_one_decomposition() -> None:
    weights, make, ctx = state(), Counted(), context()
    first = decompositions(weights, SHAPES, ["conv", "groups"], make, ctx)
    assert make.made == {"conv": 1, "groups": 1}
    again = decompositions(weights, SHAPES, ["groups", "line", "conv"], make, ctx)
    assert make.made == {"conv": 1, "groups": 1, "line": 1}
    assert list(again) == ["groups", "line", "conv"]
    assert again["conv"] is first["conv"]
    decompositions(dict(weights), SHAPES, SHAPES, make, ctx)  # another state with the same weights
    assert sum(make.made.values()) == 3
    assert decompositions(weights, SHAPES, [], make, ctx) == {}


def test_only_what_has_changed_is_decomposed_again() -> None:
    weights, make, ctx = state(), Counted(), context()
    decompositions(weights, SHAPES, SHAPES, make, ctx)
    changed = {**weights, "conv.weight": weights["conv.weight"] * 2, "conv.bias": random(4, key="new")}
    found = decompositions(changed, SHAPES, SHAPES, make, ctx)
    assert make.made == {"conv": 2, "groups": 1, "line": 1}
    assert same(found["conv"], decompose(SHAPES["conv"].matrix(changed["conv.weight"])))
    decompositions(weights, SHAPES, SHAPES, make, ctx)  # the old one is no longer there
    assert make.made == {"conv": 3, "groups": 1, "line": 1}


def test_a_weight_that_is_gone_is_not_taken_for_a_new_one_in_its_place() -> None:
    """A new tensor may lie where an old one lay; what was decomposed is kept, so that it cannot."""
    make, ctx = Counted(), context()
    for value in range(20):
        weights = {"conv.weight": torch.full((4, 3, 3, 3), float(value))}
        found = decompositions(weights, SHAPES, ["conv"], make, ctx)["conv"]
        assert float(found.energy) == pytest.approx(108.0 * value**2, rel=1e-4)
        del weights
    assert make.made["conv"] == 20


def test_what_is_made_is_of_the_unrolled_weight() -> None:
    weights = state()
    found = decompositions(weights, SHAPES, SHAPES, exactly, context())
    for name, shape in SHAPES.items():
        left, right = found[name].factors(min(shape.rows, shape.columns))
        assert left.shape[0] == shape.groups
        torch.testing.assert_close(shape.weight(left @ right), weights[f"{name}.weight"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["exact", "randomised"])
def test_bits_do_not_depend_on_the_number_of_threads_nor_on_who_asks_first(kind: str) -> None:
    weights = state()
    ranks = {"conv": [1], **RANKS}
    found = []
    for threads, names in ((1, ["conv", "groups", "line"]), (2, ["line", "conv", "groups"]), (2, ["line"])):
        torch.set_num_threads(threads)
        make = exactly if kind == "exact" else randomised(weights, ranks, 0.01, 0)
        ctx = context()
        decompositions(weights, SHAPES, names, make, ctx)
        found.append(decompositions(weights, SHAPES, SHAPES, make, ctx))
    for other in found[1:]:
        assert all(same(found[0][name], other[name]) for name in SHAPES)


# ---- randomised ----


def test_a_falling_spectrum_is_decomposed_as_far_as_needed() -> None:
    weights = state()
    found = decompositions(weights, SHAPES, ["line"], randomised(weights, RANKS, 0.01, 0), context())["line"]
    exact = decompose(weights["line.weight"][None])
    assert found.left.ndim == found.right.ndim == 3
    assert found.values.shape[-1] < SIZE
    for rank in RANKS["line"]:
        left, right = found.factors(rank)
        error = float((left @ right - weights["line.weight"]).double().norm())
        assert error <= 1.01 * float(exact.lost(rank).sqrt())
        assert float(found.lost(rank)) == pytest.approx(error**2, rel=1e-4)


@pytest.mark.parametrize(
    "weight",
    [torch.eye(SIZE), random(SIZE, SIZE), torch.full((SIZE, SIZE), 1e-30), torch.zeros(SIZE, SIZE)],
    ids=["equal", "flat", "tiny", "zero"],
)
def test_any_spectrum_is_decomposed_almost_as_well_as_it_can_be(weight: Tensor) -> None:
    weights = {"line.weight": weight}
    found = decompositions(weights, SHAPES, ["line"], randomised(weights, RANKS, 1e-4, 0), context())["line"]
    exact = decompose(weight[None])
    for rank in RANKS["line"]:
        left, right = found.factors(rank)
        error = (left @ right - weight).double().square().sum()
        assert float(error) <= 1.0003 * float(exact.lost(rank)) + 1e-5 * float(exact.energy)


def test_a_flat_spectrum_is_decomposed_exactly() -> None:
    weights = {"line.weight": random(SIZE, SIZE)}
    found = decompositions(weights, SHAPES, ["line"], randomised(weights, RANKS, 1e-4, 0), context())["line"]
    with one_thread():
        assert same(found, decompose(weights["line.weight"][None]))


def test_groups_are_exact() -> None:
    """Also where each of them alone would not be."""
    shapes = {"groups": Unrolled.of(nn.Conv2d(2 * SIZE, 2 * SIZE, 1, groups=2))}
    weights = {"groups.weight": torch.cat([falling(key=0), falling(key=1)])[..., None, None]}
    make = randomised(weights, {"groups": [4, 8]}, 0.01, 0)
    found = decompositions(weights, shapes, ["groups"], make, context())["groups"]
    with one_thread():
        assert same(found, decompose(shapes["groups"].matrix(weights["groups.weight"])))


def test_subspaces_reach_a_little_further_than_the_largest_rank() -> None:
    weights = state()
    found = decompositions(weights, SHAPES, ["line", "groups"], exactly, context())
    made = subspaces(found, RANKS)
    assert list(made) == [subspace_name("line")]
    assert subspace_name("line").startswith(KEPT)
    assert torch.equal(made[subspace_name("line")], found["line"].right[0, :, :17])  # 8 + 1 + 8
    assert made[subspace_name("line")].untyped_storage().nbytes() == SIZE * 17 * 4  # not all of what it is cut from


def next_state(old: Tensors, ctx: Context, weight: Tensor) -> Tensors:
    """What a server has after a round: another weight, and where the last decomposition ended."""
    found = decompositions(old, SHAPES, ["line"], randomised(old, RANKS, 0.01, 0), ctx)
    return {"line.weight": weight, **subspaces(found, RANKS)}


def test_a_resumed_run_finds_the_same() -> None:
    ctx, server = context(), {"line.weight": falling()}
    for step in range(4):
        going = decompositions(server, SHAPES, ["line"], randomised(server, RANKS, 0.01, 0), ctx)["line"]
        copied = {name: tensor.clone() for name, tensor in server.items()}
        resumed = decompositions(copied, SHAPES, ["line"], randomised(copied, RANKS, 0.01, 0), context())["line"]
        assert going.values.shape[-1] < SIZE  # it is not exact, or there would be nothing to see
        assert same(going, resumed), step
        server = next_state(server, ctx, server["line.weight"] + 1e-3 * random(SIZE, SIZE, key=step))


def test_the_same_weight_with_another_start_gives_what_a_fresh_memory_gives() -> None:
    """After the first decomposition its vectors are in the state, and the weight is the same as before."""
    ctx, weight = context(), falling()
    server = next_state({"line.weight": weight}, ctx, weight)
    going = decompositions(server, SHAPES, ["line"], randomised(server, RANKS, 0.01, 0), ctx)["line"]
    fresh = decompositions(server, SHAPES, ["line"], randomised(server, RANKS, 0.01, 0), context())["line"]
    assert going.values.shape[-1] < SIZE
    assert same(going, fresh)


def test_the_seed_and_the_layer_decide_what_is_drawn() -> None:
    shapes = {"line": SHAPES["line"], "other": SHAPES["line"]}
    weights = {"line.weight": falling(), "other.weight": falling()}
    ranks = {"line": [4, 8], "other": [4, 8]}
    before = torch.get_rng_state()
    makes = [randomised(weights, ranks, 0.01, seed) for seed in (0, 1)]
    found = [decompositions(weights, shapes, shapes, make, context()) for make in makes]
    assert not same(found[0]["line"], found[1]["line"])
    assert not same(found[0]["line"], found[0]["other"])
    assert torch.equal(torch.get_rng_state(), before)
