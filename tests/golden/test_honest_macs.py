"""Multiply-adds of convolutions and linear layers, by PyTorch's own counter, against numbers from the formulas."""

from __future__ import annotations

import pytest
from counting import build, example_for
from torch.utils.flop_counter import FlopCounterMode

LEVELS = (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16)


def macs_by_operation(model: str, width: float) -> dict[str, int]:
    """PyTorch counts two operations per multiply-add."""
    net = build(model, width).eval()
    with FlopCounterMode(display=False) as counter:
        net(example_for(model))
    return {str(operation): count // 2 for operation, count in counter.get_flop_counts()["Global"].items()}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("heterofl-cnn", [39974912, 10107904, 2584064, 674560, 182912]),
        ("preresnet18", [328930304, 82676224, 20890880, 5333632, 1388864]),
    ],
)
def test_image_networks(model: str, expected: list[int]) -> None:
    assert [sum(macs_by_operation(model, width).values()) for width in LEVELS] == expected


@pytest.mark.parametrize("width", LEVELS)
def test_transformer_with_and_without_its_attention(width: float) -> None:
    tokens, features, hidden, vocabulary = 64, int(256 * width), int(512 * width), 33_279
    layer = 4 * features**2 + 2 * features * hidden
    counted = macs_by_operation("transformer", width)
    assert counted == {
        "aten.addmm": tokens * (4 * layer + features**2 + features * vocabulary),
        "aten.bmm": 4 * 2 * tokens**2 * features,  # Q Kᵀ and its product with V, 4 layers
    }


def test_transformer_at_the_papers_levels() -> None:
    linear = [macs_by_operation("transformer", width)["aten.addmm"] for width in LEVELS]
    assert [f"{macs / 1e6:.1f}M" for macs in linear] == ["683.7M", "307.2M", "145.0M", "70.3M", "34.6M"]


def test_vit_small_counts_its_attention() -> None:
    counted = macs_by_operation("vit-small", 1)
    assert counted["aten.bmm"] == 12 * 2 * 197 * 197 * 384
    assert counted["aten.convolution"] == 196 * 768 * 384
    block = 197 * (384 * 1152 + 384 * 384 + 2 * 384 * 1536)
    assert counted["aten.addmm"] == 12 * block + 384 * 10
