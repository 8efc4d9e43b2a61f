"""The mean of weights that come whole, in factors or not at all, against sums in float64."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from potluck.core.random import stream
from potluck.core.types import Tensors
from potluck.parts.lowrank.layers import Layer, Unrolled, factor_names
from potluck.parts.lowrank.mean import ProductMean

FEW = settings(max_examples=80)
NET: dict[str, Layer] = {
    "conv": nn.Conv2d(5, 6, (3, 2)),
    "groups": nn.Conv2d(6, 4, 3, groups=2),
    "depth": nn.Conv2d(4, 8, 3, groups=4),
    "line": nn.Linear(7, 5),
}
SHAPES = {name: Unrolled.of(layer) for name, layer in NET.items()}
STATE = {f"{name}.weight": layer.weight.detach() for name, layer in NET.items()}


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def random(*shape: int, key: object = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=stream(0, shape, key)).to(dtype)


def sent(name: str, shape: Unrolled, how: int | None, key: object, dtype: torch.dtype = torch.float32) -> Tensors:
    """What a client sends of a layer: factors of a rank, all of it (0) or nothing (None)."""
    if how is None:
        return {}
    if how == 0:
        like = (shape.outputs, shape.inputs, *(() if shape.linear else (shape.height, shape.width)))
        return {f"{name}.weight": random(*like, key=(key, name), dtype=dtype)}
    left = random(shape.groups, shape.rows, how, key=(key, name, "left"), dtype=dtype)
    right = random(shape.groups, how, shape.columns, key=(key, name, "right"), dtype=dtype)
    return dict(zip(factor_names(name), shape.split(left, right), strict=True))


def weight_of(name: str, shape: Unrolled, tensors: Tensors) -> Tensor | None:
    """The weight a client means, in float64, by a loop over outputs and inputs."""
    if f"{name}.weight" in tensors:
        return tensors[f"{name}.weight"].double()
    first, second = (tensors.get(each) for each in factor_names(name))
    if first is None or second is None:
        return None
    if shape.linear:
        return second.double() @ first.double()
    first, second, rank = first.double(), second.double(), second.shape[1]
    weight = torch.zeros(shape.outputs, shape.inputs, shape.height, shape.width, dtype=torch.float64)
    for output in range(shape.outputs):
        group = output // (shape.outputs // shape.groups)
        own = first[group * rank : (group + 1) * rank, :, 0]  # (r, in, kw)
        weight[output] = torch.einsum("ry,rix->iyx", second[output, :, :, 0], own)
    return weight


def slow_mean(updates: list[tuple[Tensors, float]], shapes: dict[str, Unrolled] = SHAPES) -> Tensors:
    means = {}
    for name, shape in shapes.items():
        found = [(weight_of(name, shape, tensors), share) for tensors, share in updates]
        held = [(weight, share) for weight, share in found if weight is not None]
        if held:
            means[f"{name}.weight"] = sum(share * weight for weight, share in held) / sum(share for _, share in held)
    return means  # type: ignore[return-value]


def mean(updates: list[tuple[Tensors, float]], state: Tensors = STATE) -> ProductMean:
    found = ProductMean(SHAPES, state)
    for tensors, share in updates:
        found.add(tensors, share)
    return found


HOW = st.one_of(st.none(), st.integers(0, 4))
CLIENTS = st.lists(st.tuples(st.tuples(HOW, HOW, HOW, HOW), st.floats(0.01, 10)), min_size=1, max_size=5)


def updates_of(clients: list[tuple[tuple[int | None, ...], float]]) -> list[tuple[Tensors, float]]:
    made = []
    for place, (kinds, share) in enumerate(clients):
        tensors: Tensors = {"else": torch.zeros(3)}
        for (name, shape), how in zip(SHAPES.items(), kinds, strict=True):
            tensors |= sent(name, shape, how, place)
        made.append((tensors, share))
    return made


@FEW
@given(CLIENTS)
def test_it_is_the_weighted_mean_over_those_who_sent_a_layer(
    clients: list[tuple[tuple[int | None, ...], float]],
) -> None:
    updates = updates_of(clients)
    found, expected = mean(updates).result(), slow_mean(updates)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.dtype == torch.float32
        assert tensor.shape == STATE[name].shape
        torch.testing.assert_close(tensor.double(), expected[name], rtol=1e-5, atol=1e-5)


@FEW
@given(CLIENTS, st.randoms())
def test_the_order_does_not_matter(clients: list[tuple[tuple[int | None, ...], float]], shuffler: object) -> None:
    updates = updates_of(clients)
    other = list(updates)
    shuffler.shuffle(other)  # type: ignore[attr-defined]
    one, two = mean(updates), mean(other)
    for name, tensor in one.result().items():
        assert (tensor - two.result()[name]).abs().max() < 1e-6 * max(1.0, float(tensor.abs().max()))
    assert one.norms.keys() == two.norms.keys()
    assert all(torch.equal(norms, two.norms[name]) for name, norms in one.norms.items())


def test_by_hand() -> None:
    """(3 · (1, 2)ᵀ(1, 1) + 1 · ((0, 4), (8, 0))) / 4."""
    shape = {"a": Unrolled.of(nn.Linear(2, 2))}
    found = ProductMean(shape, {"a.weight": torch.zeros(2, 2)})
    found.add({"a.first.weight": torch.tensor([[1.0, 1.0]]), "a.second.weight": torch.tensor([[1.0], [2.0]])}, 3.0)
    found.add({"a.weight": torch.tensor([[0.0, 4.0], [8.0, 0.0]])}, 1.0)
    assert found.result()["a.weight"].tolist() == [[0.75, 1.75], [3.5, 1.5]]
    assert found.norms["a"].tolist() == pytest.approx([5**0.5, 2**0.5])


def test_norms_are_the_largest_that_were_sent() -> None:
    clients = [((2, 1, None, 3), 1.0), ((0, 4, 2, 0), 5.0), ((3, 2, 1, 1), 0.1)]
    updates = updates_of(clients)
    found = mean(updates)
    for name in SHAPES:
        first, second = factor_names(name)
        pairs = [(tensors[second], tensors[first]) for tensors, _ in updates if first in tensors]
        expected = [max(float(pair[side].double().square().sum().sqrt()) for pair in pairs) for side in (0, 1)]
        assert found.norms[name].tolist() == pytest.approx(expected, rel=1e-6)


def test_whole_layers_have_no_norms() -> None:
    assert mean(updates_of([((0, 0, None, 0), 1.0)])).norms == {}


def test_a_layer_nobody_sent_is_not_in_the_result() -> None:
    assert set(mean(updates_of([((0, None, 2, None), 1.0)])).result()) == {"conv.weight", "depth.weight"}
    assert mean([]).result() == {}


def test_half_of_a_pair_is_nothing() -> None:
    updates = updates_of([((2, 2, 2, 2), 1.0)])
    del updates[0][0]["conv.first.weight"]
    assert "conv.weight" not in mean(updates).result()


@pytest.mark.parametrize("share", [1e-30, 0.3, 1e30])
def test_equal_whole_weights_give_themselves_back(share: float) -> None:
    updates = updates_of([((0, 0, 0, 0), share)])
    found = mean(updates * 7).result()
    assert all(torch.equal(found[name], updates[0][0][name]) for name in found)


def test_a_client_of_weight_zero_has_no_say() -> None:
    (one, _), (two, _) = updates_of([((2, 2, 2, 2), 1.0), ((0, 1, 2, 0), 1.0)])
    expected = mean([(two, 1.0)]).result()
    for updates in ([(one, 0.0), (two, 1.0)], [(two, 1.0), (one, 0.0)]):
        found = mean(updates).result()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert mean([(one, 0.0)]).result() == {}


def test_nothing_is_changed() -> None:
    updates = updates_of([((0, 1, 2, 0), 1.0), ((2, 0, 0, 1), 2.0)])
    state = {name: tensor.clone() for name, tensor in STATE.items()}
    before = [{name: tensor.clone() for name, tensor in tensors.items()} for tensors, _ in updates]
    mean(updates, state).result()
    assert all(torch.equal(state[name], STATE[name]) for name in STATE)
    for (tensors, _), old in zip(updates, before, strict=True):
        assert all(torch.equal(tensors[name], old[name]) for name in tensors)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_are_kept_and_computed_with_in_at_least_float32(dtype: torch.dtype) -> None:
    state = {name: tensor.to(dtype) for name, tensor in STATE.items()}
    updates = []
    for place, how in enumerate([2, 0, 3, 0]):
        tensors: Tensors = {}
        for name, shape in SHAPES.items():
            tensors |= sent(name, shape, how, place, dtype)
        updates.append((tensors, 1.0 + place))
    found, expected = mean(updates, state).result(), slow_mean(updates)
    unit = torch.finfo(dtype).eps
    for name, tensor in found.items():
        assert tensor.dtype == dtype
        largest = float(expected[name].abs().max())
        assert (tensor.double() - expected[name]).abs().max() <= max(unit, 1e-14) * max(largest, 1.0) * 4


def large(threads: int) -> tuple[Tensors, Tensors]:
    """Layers beyond what PyTorch gives to one thread, and sums so long that it would split them."""
    shapes = {
        "conv": Unrolled.of(nn.Conv2d(128, 160, 3)),
        "groups": Unrolled.of(nn.Conv2d(128, 128, 3, groups=2)),
        "line": Unrolled.of(nn.Linear(300, 400)),
        "long": Unrolled.of(nn.Linear(30, 30)),
    }
    torch.set_num_threads(threads)
    state: Tensors = {}
    for name, shape in shapes.items():
        state |= sent(name, shape, 0, "state")
    found = ProductMean(shapes, state)
    for place, (how, share) in enumerate([(0, 1.0), (80, 0.6), (100, 0.3), (0, 0.7), (None, 1.0), (40, 0.1)]):
        tensors: Tensors = {}
        for name, shape in shapes.items():
            tensors |= sent(name, shape, 30 * how if how and name == "long" else how, place)
        found.add(tensors, share)
    return found.result(), found.norms


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    one, two = large(1), large(2)
    for first, second in zip(one, two, strict=True):
        assert first.keys() == second.keys()
        assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    assert torch.get_num_threads() == 2
