"""The plan between two networks that are known by their shapes alone."""

from __future__ import annotations

from potluck.parts.cut.channels import channels_by_size
from potluck.parts.cut.plan import Plan
from potluck.parts.width.between import check_shapes


def prefix_plan(wide, narrow, blocks=None) -> Plan:
    """The first channels of every dimension, or of each of its blocks."""
    check_shapes(wide, narrow)
    channels = channels_by_size(wide, narrow, blocks or {})
    return channels.plan(channels.counts_in(narrow))
