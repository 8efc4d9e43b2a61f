"""Other channels than the first ones also belong together: any choice leaves a network that computes the same."""

from __future__ import annotations

import pytest
from torch import nn

from potluck.core.tensors import state_of
from potluck.parts.cut.choice import Choice, Disjoint, Largest, Random, Rolling
from potluck.parts.shrink.shrinkable import Shrinkable
from zoo.checks import furthest, kept_indices, outputs, tell_channels_apart, with_nothing_outside
from zoo.zoo import ZOO

NETS = ("resnext", "gru_classifier")  # groups with shortcuts, gates
CHOICES: list[Choice] = [Rolling(3), Disjoint(1, 2), Random(7), Largest(tuple(at * 37 % 101 for at in range(5000)))]


@pytest.fixture(scope="module", params=NETS)
def wide(request: pytest.FixtureRequest, on_one_thread: None) -> tuple[nn.Module, Shrinkable, str]:
    entry = ZOO[request.param]
    net = tell_channels_apart(entry.build(), entry.batch(8)).eval()
    return net, Shrinkable(net, entry.inputs()), request.param


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: type(choice).__name__)
def test_chosen_channels_belong_together(wide: tuple[nn.Module, Shrinkable, str], choice: Choice) -> None:
    net, shrink, name = wide
    channels = shrink.findings.channels
    counts = channels.counts(0.5)
    plan = channels.plan(counts, choice)
    narrow = shrink(0.5)
    narrow.load_state_dict(plan.take(state_of(net)), strict=False)
    batch = ZOO[name].batch(2)
    assert furthest(outputs(narrow, batch), outputs(with_nothing_outside(net, plan), batch)) < 1e-5
    first = channels.plan(counts)
    assert any(kept_indices(plan, tensor) != kept_indices(first, tensor) for tensor in plan.narrowed)
