"""The networks of the zoo run, train, and are what their entries say."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from zoo.checks import gradients, outputs, shapes, state_shapes, tell_channels_apart
from zoo.entry import Entry
from zoo.zoo import ZOO

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
CHANNEL_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@pytest.fixture(scope="module", params=ZOO)
def kept(request: pytest.FixtureRequest) -> tuple[Entry, nn.Module]:
    return ZOO[request.param], ZOO[request.param].build()


def finite(tensors: list[Tensor]) -> bool:
    return bool(tensors) and all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_runs_and_trains(kept: tuple[Entry, nn.Module], training: bool) -> None:
    entry, net = kept
    reached = gradients(net, entry.batch(2), training)
    assert finite(outputs(net, entry.batch(2), training))
    assert set(reached) == {name for name, _ in net.named_parameters()}
    assert finite(list(reached.values()))


def test_is_the_same_every_time(kept: tuple[Entry, nn.Module]) -> None:
    entry, net = kept
    again = entry.build().state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in net.state_dict().items())
    assert all(torch.equal(a, b) for a, b in zip(entry.inputs(), entry.inputs(), strict=True))
    assert all(len(tensor) == 1 for tensor in entry.inputs())


@pytest.mark.whole
@pytest.mark.parametrize("width", [0.5, 0.25])
def test_its_author_would_write_it_narrower_so(kept: tuple[Entry, nn.Module], width: float) -> None:
    entry, wide = kept
    narrow = entry.build(width)
    assert shapes(outputs(narrow, entry.batch(2))) == shapes(outputs(wide, entry.batch(2)))
    assert set(state_shapes(narrow)) == set(state_shapes(wide))
    for name, shape in state_shapes(wide).items():
        held = state_shapes(narrow)[name]
        assert all(few in (many, many * width) for few, many in zip(held, shape, strict=True)), (name, shape, held)


def test_channels_and_examples_can_be_told_apart(kept: tuple[Entry, nn.Module]) -> None:
    entry, net = kept
    apart = tell_channels_apart(copy.deepcopy(net), entry.batch(8))
    assert all(parameter.unique().numel() > 0.9 * parameter.numel() for parameter in apart.parameters())
    results = outputs(apart, entry.batch(2))
    assert finite(results)
    assert any(float((one - other).abs().max()) > 0.05 * float(one.abs().max()) for one, other in results)


def test_norms_over_channels_are_declared(kept: tuple[Entry, nn.Module]) -> None:
    entry, net = kept
    if any(isinstance(module, CHANNEL_NORMS) for module in net.modules()):
        assert entry.normalised_over_channels
