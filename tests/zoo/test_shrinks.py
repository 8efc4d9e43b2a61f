"""Every network of the zoo can be made narrower: it runs, it is its author's, and a plan knows which part it holds."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from potluck.core.tensors import state_of
from potluck.core.types import Tensors
from potluck.parts.cut.channels import Channels
from potluck.parts.cut.mean import HolderMean
from potluck.parts.cut.plan import Plan, shapes_of
from potluck.parts.shrink.shrinkable import Shrinkable
from potluck.parts.trace.findings import study
from zoo.checks import (
    furthest,
    gradients,
    kept_indices,
    module_types,
    outputs,
    parameter_count,
    shapes,
    state_shapes,
    tell_channels_apart,
    tied,
    with_channels_moved,
    with_nothing_outside,
)
from zoo.entry import Entry
from zoo.zoo import ZOO

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
WIDTHS = (0.5, 0.25)
EACH_WIDTH = pytest.mark.parametrize("width", WIDTHS)


@dataclass(frozen=True)
class Shrunk:
    """A network, what it was before anybody shrank it, and its narrow copies with their plans."""

    entry: Entry
    wide: nn.Module
    state_before: Tensors
    outputs_before: list[Tensor]
    narrow: dict[float, nn.Module]
    plan: dict[float, Plan]
    channels: Channels


@pytest.fixture(scope="module", params=ZOO)
def shrunk(request: pytest.FixtureRequest, on_one_thread: None) -> Shrunk:
    entry = ZOO[request.param]
    wide = tell_channels_apart(entry.build(), entry.batch(8)).train()
    state = copy.deepcopy(state_of(wide))
    results = outputs(wide, entry.batch(2))
    shrink = Shrinkable(wide, entry.inputs())
    narrow = {width: shrink(width) for width in WIDTHS}
    plans = {width: shrink.plan(width) for width in WIDTHS}
    return Shrunk(entry, wide, state, results, narrow, plans, shrink.findings.channels)


def same(one: Tensors, other: Tensors) -> bool:
    """Whether two states have the same names, types and values, bit by bit."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


@pytest.mark.parametrize("width", [pytest.param(0.5, marks=pytest.mark.slow), 0.25])
@pytest.mark.parametrize(
    "training", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["training", "evaluation"]
)
def test_runs_and_trains(shrunk: Shrunk, width: float, training: bool) -> None:
    reached = gradients(shrunk.narrow[width], shrunk.entry.batch(2), training)
    assert set(reached) == {name for name, _ in shrunk.wide.named_parameters()}
    assert all(bool(torch.isfinite(gradient).all()) for gradient in reached.values())


@EACH_WIDTH
def test_gives_outputs_of_the_same_shapes(shrunk: Shrunk, width: float) -> None:
    results = outputs(shrunk.narrow[width], shrunk.entry.batch(2))
    assert shapes(results) == shapes(shrunk.outputs_before)


@EACH_WIDTH
def test_is_the_same_kind_of_network(shrunk: Shrunk, width: float) -> None:
    narrow = shrunk.narrow[width]
    assert module_types(narrow) == module_types(shrunk.wide)
    assert tied(narrow) == tied(shrunk.wide)
    assert not {id(p) for p in narrow.parameters()} & {id(p) for p in shrunk.wide.parameters()}


@EACH_WIDTH
def test_has_the_shapes_its_author_would_have_given_it(shrunk: Shrunk, width: float) -> None:
    assert state_shapes(shrunk.narrow[width]) == state_shapes(shrunk.entry.build(width))


@EACH_WIDTH
def test_size_goes_with_the_square_of_the_width(shrunk: Shrunk, width: float) -> None:
    share = parameter_count(shrunk.narrow[width]) / parameter_count(shrunk.wide)
    assert 0.6 * width**2 <= share <= shrunk.entry.most * width**2


@EACH_WIDTH
def test_the_plan_takes_what_the_narrow_network_holds(shrunk: Shrunk, width: float) -> None:
    taken = shrunk.plan[width].take(state_of(shrunk.wide))
    assert same(taken, state_of(shrunk.narrow[width]))


def test_the_plan_can_be_read_off_the_two_networks(shrunk: Shrunk) -> None:
    channels = study(shrunk.wide, shrunk.entry.inputs()).channels
    counts = channels.counts_in(shapes_of(shrunk.narrow[0.25].state_dict()))
    assert channels.plan(counts) == shrunk.plan[0.25]


@EACH_WIDTH
def test_one_untouched_holder_changes_nothing(shrunk: Shrunk, width: float) -> None:
    state, plan = state_of(shrunk.wide), shrunk.plan[width]
    mean = HolderMean(state)
    mean.add(plan.take(state), plan=plan)
    assert same(mean.result(), shrunk.state_before)


@EACH_WIDTH
def test_absent_channels_are_as_good_as_zeroed_ones(shrunk: Shrunk, width: float) -> None:
    """Indices that did not belong together from one layer to the next would show here."""
    if shrunk.entry.normalised_over_channels:
        pytest.skip("its norms tell zeroed channels from absent ones")
    batch = shrunk.entry.batch(2)
    absent = outputs(shrunk.narrow[width], batch)
    zeroed = outputs(with_nothing_outside(shrunk.wide, shrunk.plan[width]), batch)
    assert furthest(absent, zeroed) < 1e-5
    assert furthest(absent, shrunk.outputs_before) > 1e-3


def test_channels_of_a_block_can_change_places(shrunk: Shrunk) -> None:
    """As above, and norms over channels do not mind; this also asks whether blocks are not too large."""
    if shrunk.entry.channels_in_order:
        pytest.skip("it treats its channels as an order")
    moved = outputs(with_channels_moved(shrunk.wide, shrunk.channels), shrunk.entry.batch(2))
    assert furthest(moved, shrunk.outputs_before) < 1e-4


def test_narrower_plans_lie_inside_wider_ones(shrunk: Shrunk) -> None:
    half, quarter = shrunk.plan[0.5], shrunk.plan[0.25]
    for name in state_of(shrunk.wide):
        for some, more in zip(kept_indices(quarter, name), kept_indices(half, name), strict=True):
            assert set(some) <= set(more), name


def test_the_original_is_left_as_it_was(shrunk: Shrunk) -> None:
    assert same(state_of(shrunk.wide), shrunk.state_before)
    assert shrunk.wide.training
    assert all(parameter.grad is None for parameter in shrunk.wide.parameters())
    now = outputs(shrunk.wide, shrunk.entry.batch(2))
    assert all(torch.equal(a, b) for a, b in zip(now, shrunk.outputs_before, strict=True))
