"""The normalisations that HeteroFL's ablation compares, in the place of batch norm."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from torch import nn

from potluck.core.errors import ModelError

Norm = Literal["bn", "in", "gn", "ln", "none"]
GROUPS = 4


def norm_layer(norm: Norm, channels: int) -> nn.Module:
    """Batch norm, nothing, or group norm with a group per channel ("in"), 4 groups ("gn") or one ("ln").

    >>> norm_layer("in", 8).num_groups
    8
    """
    if norm == "bn":
        return nn.BatchNorm2d(channels)
    if norm == "none":
        return nn.Identity()
    return nn.GroupNorm(groups(norm, channels), channels)


def groups(norm: Literal["in", "gn", "ln"], channels: int) -> int:
    """How many groups these channels are normalised in."""
    return {"in": channels, "gn": GROUPS, "ln": 1}[norm]


def check_norm(norm: Norm, width: float, layers: Iterable[tuple[int, int]]) -> None:
    """Refuse a norm that a layer of so many channels at so many positions of the image cannot have."""
    if norm not in get_args(Norm):
        raise ModelError(f"norm is '{norm}', but it should be one of {', '.join(get_args(Norm))}")
    if norm == "bn" or norm == "none":
        return
    for channels, positions in layers:
        parts = groups(norm, channels)
        if channels % parts:
            raise ModelError(
                f"norm is '{norm}', but width {width:g} leaves a layer {channels} channels, which are not {parts} "
                f"equal groups; choose widths that leave every layer a multiple of {parts}"
            )
        if channels * positions == parts:
            raise ModelError(
                f"norm is '{norm}', but at width {width:g} the image has shrunk to one pixel where a group is one "
                "channel, and a single value always normalises to 0; choose larger images or another norm"
            )
