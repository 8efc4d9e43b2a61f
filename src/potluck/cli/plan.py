"""`potluck plan`: what a network keeps at a smaller width, and what cannot shrink and why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli.options import AsJson, Overrides
from potluck.cli.show import console, say, table_of
from potluck.core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from potluck.study.networks import Model
    from potluck.study.plan import Dimension, WidthPlan


def plan(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="a network's name, or package.module:net of your own")],
    input: Annotated[
        list[str] | None, typer.Option(help="its input: 3x32x32, or int:64 for tokens; again for every further input")
    ] = None,
    width: Annotated[float, typer.Option(help="the width, as a share of the full one")] = 0.5,
    keep: Annotated[list[str] | None, typer.Option(help="a module or tensor that stays whole; may be repeated")] = None,
    rounding: Annotated[str, typer.Option(help="how channels are rounded: ceil or round")] = "ceil",
    method: Annotated[
        str | None, typer.Option(help="a method that treats layers differently: what becomes of each")
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """What a network keeps at a smaller width: per layer what is kept, what goes together, what stays and why.

    With --method fedhm or flanc: which layers are in factors or composed at this ratio, and why the others are not.
    """
    from potluck.study.costs import named_inputs
    from potluck.study.networks import model_factory
    from potluck.study.plan import plan as make_plan
    from potluck.study.schema import TYPED

    example = named_inputs(model, input or [])
    options = {**({"keep": keep} if keep else {}), **({"rounding": rounding} if rounding != "ceil" else {})}
    if overrides and method is None:
        raise ConfigError(f"--set {overrides[0]}: a plan takes settings of a method; say which with --method")
    source = model_factory(model, options, example, None, TYPED)
    if method is not None:
        show_treatment(model, explained(source, example[0], width, method, overrides or []), width, method, as_json)
        return
    found = make_plan(source, example, width)
    if as_json:
        typer.echo(json.dumps({"model": model, **found.table()}, indent=1))
        return
    console.print(layers_table(model, found))
    console.print(groups_table(found))
    if found.whole_dimensions:
        console.print(whole_table(found))
    share = found.parameters / found.parameters_full
    say(f"{found.parameters:,} of {found.parameters_full:,} parameters ({share:.1%}) at width {width:g}.")


def explained(model: Model, example: Tensor, width: float, name: str, overrides: list[str]) -> dict[str, str]:
    """What a method does with each layer at a ratio beside the full one; settings come from --set method.KEY=…."""
    from potluck import methods
    from potluck.core.insight import Explains
    from potluck.study.config import apply_override, read_plug
    from potluck.study.costs import context_for
    from potluck.study.schema import TYPED, Table

    settings: Table = {"method": {}}
    for override in overrides:
        if apply_override(settings, override).partition(".")[0] != "method":
            raise ConfigError(f"--set {override}: a plan takes settings of the method alone, such as method.rho=3")
    find = partial(methods.find, trusted=True)
    chosen = read_plug(find, {"name": name, **settings["method"]}, "method", TYPED)
    levels = {"full": 1.0, f"{width:g}": width} if width < 1 else {f"{width:g}": width}
    ctx = context_for(model, levels, example, chosen)
    told = chosen.explain(ctx.task.levels[-1], ctx) if isinstance(chosen, Explains) else {}
    if not told:
        raise ConfigError(f"{name} treats all layers alike; leave --method out to see what a width keeps")
    return dict(told)


def show_treatment(model: str, told: Mapping[str, str], width: float, method: str, as_json: bool) -> None:
    """What becomes of each layer, for people or for programs."""
    if as_json:
        typer.echo(json.dumps({"model": model, "method": method, "ratio": width, "layers": told}, indent=1))
    else:
        columns = {"layer": list(told), "": list(told.values())}
        console.print(table_of(f"{model} at ratio {width:g} with {method}", columns, justify="left"))


def layers_table(model: str, found: WidthPlan) -> Any:
    """A row per parameter that shrinks: its sizes, and the channels that lie along them."""
    cut = {name: dims for name, dims in found.tensors.items() if name not in found.kept_whole}
    numbers = {group: f"#{number}" for number, group in enumerate(found.groups, start=1)}
    return table_of(
        f"{model} at width {found.width:g}",
        {
            "parameter": list(cut),
            "full": [sizes(dim.size for dim in dims) for dims in cut.values()],
            "kept": [sizes(dim.kept for dim in dims) for dims in cut.values()],
            "channels": [" x ".join(channels_of(dim, numbers) for dim in dims if dim.groups) for dims in cut.values()],
        },
        justify="left",
    )


def groups_table(found: WidthPlan) -> Any:
    """A row per set of channels that go together, with where they lie, and why they are not as many as one expects."""
    laid = {group: ", ".join(places) for group, places in found.groups.items()}
    remarks = {group: f" ({remark})" for group, remark in found.remarks.items()}
    return table_of(
        "Channels that go together",
        {
            "": [f"#{number}" for number in range(1, len(laid) + 1)],
            "in": [places + remarks.get(group, "") for group, places in laid.items()],
        },
        justify="left",
    )


def whole_table(found: WidthPlan) -> Any:
    """A row per reason, with the dimensions that stay whole for it."""
    reasons: dict[str, list[str]] = {}
    for place, reason in found.whole_dimensions.items():
        reasons.setdefault(reason, []).append(place)
    return table_of(
        "Stays whole",
        {"dimensions": [", ".join(places) for places in reasons.values()], "because": list(reasons)},
        justify="left",
    )


def sizes(numbers: Iterable[int]) -> str:
    """Sizes as one writes them."""
    return "x".join(map(str, numbers))


def channels_of(dim: Dimension, numbers: Mapping[str, str]) -> str:
    """The channels along a dimension, by their numbers."""
    return "+".join(numbers[group] for group in dim.groups)
