"""Ways to train by name, and how a network and its batches lie in memory for them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from potluck.core.errors import ConfigError
from potluck.core.types import Batch, Phase, Tensors, Train
from potluck.core.ways.way import Way

PLAIN, SWIFT, CHANNELS_LAST = (Way.called(name) for name in ("plain", "swift", "channels-last"))
LAST = torch.channels_last


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("plain", Way()),
        ("swift", Way(swift=True)),
        ("channels-last", Way(swift=True, channels_last=True)),
        ("stacked-1", Way(stack=1)),
        ("stacked-8", Way(stack=8)),
        ("stacked-9999", Way(stack=9999)),
    ],
)
def test_a_name_is_a_way(name: str, way: Way) -> None:
    assert Way.called(name) == way


@pytest.mark.parametrize(
    "name",
    [
        *("", "Plain", "fast", "channels_last", " swift", "swift,plain", "stacked", "stacked-", "stacked-0"),
        *("stacked-08", "stacked--1", "stacked-8.0", "stacked-10000", "stacked-8\n", "stacked-٨"),
    ],
)
def test_another_name_is_refused_with_those_that_would_do(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Way.called(name)
    message = str(caught.value)
    assert message.startswith(f"[engine] step is {name!r}, but it should be ")
    for right in ("'auto'", "'plain'", "'swift'", "'channels-last'", "'stacked-8'"):
        assert right in message


def network() -> nn.Sequential:
    """With one input channel and a 1x1 kernel, whose two layouts look alike."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 2, 1), nn.Linear(2, 2))


def replaced() -> bool:
    """Whether operations are replaced at present."""
    images = torch.randn(1, 2, 4, 4).contiguous(memory_format=LAST).requires_grad_()
    return "MaxPoolBackward" in type(F.max_pool2d(images, 2).grad_fn).__name__


def test_a_network_is_laid_out_and_the_plain_way_puts_it_back() -> None:
    net, untouched = network(), network()
    parameters = list(net.parameters())
    with CHANNELS_LAST.arranged(net):
        assert all(p.is_contiguous(memory_format=LAST) for p in net.parameters() if p.dim() == 4)
        assert not net[1].weight.is_contiguous()
    for way in (PLAIN, SWIFT):
        with CHANNELS_LAST.arranged(net):
            pass
        with way.arranged(net):
            for found, before in zip(net.parameters(), untouched.parameters(), strict=True):
                assert found.stride() == before.stride()
                assert torch.equal(found, before)
    assert all(one is other for one, other in zip(net.parameters(), parameters, strict=True))  # an optimiser's, too


@pytest.mark.parametrize(
    ("way", "swift"), [(PLAIN, False), (SWIFT, True), (CHANNELS_LAST, True), (Way(stack=4), False)]
)
def test_operations_are_replaced_in_the_loss_alone(way: Way, swift: bool) -> None:
    """An optimiser would be slowed by it."""
    seen = []

    def loss(net: nn.Module, batch: Batch, extra: Tensors) -> Tensor:
        seen.append(replaced())
        if extra:
            raise ValueError("a bug")
        return torch.zeros(())

    net, batch, phase = network(), (torch.zeros(1), torch.zeros(1)), way.phase(Phase(loss), Train())
    with way.arranged(net):
        assert not replaced()
        phase.loss(net, batch, {})
        assert not replaced()
        with pytest.raises(ValueError, match="a bug"):
            phase.loss(net, batch, {"broken": torch.ones(1)})
        assert not replaced()
    assert seen == [swift, swift]


def test_only_images_are_laid_out_anew() -> None:
    targets = torch.arange(5)
    images = torch.randn(5, 3, 4, 4)
    found, labels = CHANNELS_LAST.batch((images, targets))
    assert found.is_contiguous(memory_format=LAST)
    assert not found.is_contiguous()
    assert torch.equal(found, images)
    assert labels is targets
    for shape in ((5,), (5, 7), (5, 7, 3), (5, 3, 2, 4, 4)):
        inputs = torch.zeros(shape)
        assert CHANNELS_LAST.batch((inputs, targets))[0] is inputs


@pytest.mark.parametrize("shape", [(5, 1, 4, 6), (5, 1, 1, 1), (1, 1, 3, 1), (0, 1, 4, 4)])
def test_a_single_channel_comes_last_too(shape: tuple[int, ...]) -> None:
    """Both layouts are one in memory, but PyTorch goes by the strides."""
    images = torch.randn(shape)
    found, _ = CHANNELS_LAST.batch((images, torch.arange(len(images))))
    assert found.stride() == (shape[2] * shape[3], 1, shape[3], 1)
    assert torch.equal(found, images)
    if len(images):
        seen = F.conv2d(found, torch.randn(3, 1, 1, 1))
        assert seen.is_contiguous(memory_format=LAST)


@pytest.mark.parametrize("way", [PLAIN, SWIFT, Way(stack=8)])
def test_other_ways_take_a_batch_as_it_is(way: Way) -> None:
    batch = torch.randn(5, 3, 4, 4), torch.arange(5)
    assert all(one is other for one, other in zip(way.batch(batch), batch, strict=True))
