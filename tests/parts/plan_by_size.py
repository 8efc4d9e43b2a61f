"""The plan between two networks that are known by their shapes alone."""

from __future__ import annotations

from potluck.parts.channels import channels_by_size
from potluck.parts.plans import check_shapes
from potluck.parts.width import Plan


def prefix_plan(wide, narrow, blocks=None) -> Plan:
    """The first channels of every dimension, or of each of its blocks."""
    check_shapes(wide, narrow)
    channels = channels_by_size(wide, narrow, blocks or {})
    return channels.plan(channels.counts_in(narrow))
