"""The plan between two levels' networks: which part of a wide one a narrow one holds."""

from __future__ import annotations

from torch import nn

from potluck.core.errors import ModelError
from potluck.core.inputs import Inputs
from potluck.core.types import Context, Level
from potluck.parts.cut.channels import Channels, channels_by_size
from potluck.parts.cut.choice import Choice, Prefix
from potluck.parts.cut.declared import blocks_per_dimension
from potluck.parts.cut.plan import Plan, Shapes, shapes_of
from potluck.parts.trace.findings import study


def plan_between(ctx: Context, wide: Level, narrow: Level, choice: Choice = Prefix()) -> Plan:  # noqa: B008
    """Which part of the network of one level a narrower level's network holds."""
    return ctx.once(make_plan, wide, narrow, choice)


def make_plan(wide: Level, narrow: Level, choice: Choice, ctx: Context) -> Plan:
    """The plan that a choice makes of the channels between two levels."""
    channels, counts = ctx.once(counted, wide, narrow)
    return channels.plan(counts, choice)


def counted(wide: Level, narrow: Level, ctx: Context) -> tuple[Channels, list[int]]:
    """The channels of the wide level's network, and how many of each block the narrow one's has."""
    return counts_between(ctx.build(wide), ctx.build(narrow), ctx.task.example[0])


def counts_between(wide: nn.Module, narrow: nn.Module, example: Inputs) -> tuple[Channels, list[int]]:
    """The channels of a network, found by running it once, and how many of each block a narrower one has."""
    large, small = shapes_of(wide.state_dict()), shapes_of(narrow.state_dict())
    check_shapes(large, small)
    channels = study(wide, example).channels
    try:
        return channels, channels.counts_in(small)
    except ModelError:  # a function of the width need not cut where the network's couplings are
        channels = channels_by_size(large, small, blocks_per_dimension(wide))
        return channels, channels.counts_in(small)


def check_shapes(wide: Shapes, narrow: Shapes) -> None:
    """Refuse two networks if the narrow one is no part of the wide one."""
    if set(wide) != set(narrow):
        raise ModelError(
            "the network has other parameters at another width: "
            f"{sorted(set(wide) ^ set(narrow))} exist at one width only; make its layers the same at every width"
        )
    for name, shape in narrow.items():
        if len(shape) != len(wide[name]) or any(n > w for n, w in zip(shape, wide[name], strict=True)):
            raise ModelError(
                f"'{name}' has shape {shape} in the narrow network: no part of the wide one's {wide[name]}"
            )
