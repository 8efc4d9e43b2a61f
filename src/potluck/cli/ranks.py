"""`potluck ranks`: which ranks a budget buys, chosen from the spectra of a trained network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from potluck.cli.costs import parse_levels
from potluck.cli.options import AsJson, Trust
from potluck.cli.show import console, percent, quantity, say, table_of
from potluck.core.errors import ConfigError
from potluck.core.plug import unknown

if TYPE_CHECKING:
    from potluck.study.ranks import RankChoice


def ranks(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the directory of a run with a global network")],
    share: Annotated[str, typer.Option(help="of what: parameters, macs, bytes or seconds")] = "parameters",
    levels: Annotated[str, typer.Option(help="the shares of the whole network's cost")] = "0.5,0.25,0.125",
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Which layers to put into factors, and of which ranks, so that a budget loses the least energy.

    Beside them stand the ranks of FedHM's rule, round(gamma * outputs) from its rho on, with the largest gamma that
    fits the same budget. A run of FedHM chooses such ranks itself, anew in every round, with method.share.
    """
    from potluck.methods.fedhm import FedHM
    from potluck.parts.lowrank.prices import Unit
    from potluck.study.levels import make_levels
    from potluck.study.ranks import choose_ranks
    from potluck.study.recorded import load

    if share not in get_args(Unit):
        raise ConfigError(f"--share: {unknown('unit', share, get_args(Unit))}")
    recorded = load(run, trust=trust)
    (state, _), ctx = recorded.latest, recorded.recipe.context(0)
    method = recorded.method if isinstance(recorded.method, FedHM) else FedHM()
    choices = choose_ranks(state, make_levels(parse_levels(levels)), share, method, ctx)  # type: ignore[arg-type]
    if as_json:
        typer.echo(json.dumps([choice.table() for choice in choices], indent=1))
        return
    console.print(rank_table(choices, str(share)))
    for choice in choices:
        say(sentence(choice, str(share)))


def rank_table(choices: list[RankChoice], share: str) -> Any:
    """A row per layer, for every budget the chosen rank and that of the rule."""
    layers = dict.fromkeys(name for choice in choices for found in (choice.chosen, choice.rule) for name in found.ranks)
    columns: dict[str, list[str]] = {"layer": list(layers)}
    for choice in choices:
        for title, found in (("chosen", choice.chosen), ("rule", choice.rule)):
            columns[f"{choice.level} {title}"] = [str(found.ranks.get(name, "whole")) for name in layers]
    return table_of(f"Ranks for shares of the {share}", columns)


def sentence(choice: RankChoice, share: str) -> str:
    """What a choice gains."""
    ways = []
    for found in (choice.table()["chosen"], choice.table()["rule"]):
        start = f"from {found['first']} on" if found["first"] else "all whole"
        ways.append(f"{start}, at {quantity(found['cost'])}, {percent(found['lost_energy'])} of the energy is lost")
    return (
        f"{choice.level} of the {share} ({quantity(choice.budget)}): chosen {ways[0]}; by the rule with gamma "
        f"{choice.gamma:g} {ways[1]}."
    )
