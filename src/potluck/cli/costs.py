"""`potluck costs`: what each level costs a device, of an experiment or of any network."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli.options import AsJson, DataDir, Overrides, Trust
from potluck.cli.show import console, in_bytes, quantity, table_of, tell
from potluck.core.errors import ConfigError
from potluck.core.plug import unknown

if TYPE_CHECKING:
    from potluck.study.costs import Row

SETTABLE = ("model", "method", "train")
TRAINED = "parameters trained"


def costs(
    config: Annotated[Path | None, typer.Argument(metavar="[CONFIG]", help="an experiment as a TOML file")] = None,
    model: Annotated[str | None, typer.Option(help="a network's name, or package.module:factory of your own")] = None,
    input: Annotated[str | None, typer.Option(help="its input: 3x32x32, or int:64 for tokens")] = None,
    classes: Annotated[int | None, typer.Option(min=1, help="how many outputs it has")] = None,
    method: Annotated[str, typer.Option(help="the method that trains it")] = "heterofl",
    levels: Annotated[str, typer.Option(help="the ratios of the levels")] = "1,0.5,0.25",
    overrides: Overrides = None,
    data_dir: DataDir = None,
    measure: Annotated[bool, typer.Option(help="also take training steps: peak memory and time")] = True,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """What each level costs a device: parameters, MACs, bytes per round, training memory and time.

    Of an experiment: potluck costs CONFIG. Of any network: potluck costs --model resnet34 --input 3x64x64
    --classes 200 --method heterofl --levels 1,0.5,0.25
    """
    if (config is None) == (model is None):
        raise ConfigError("costs needs either a CONFIG or a --model")
    if config is not None:
        from potluck.study.config import read_config
        from potluck.study.costs import cost_rows
        from potluck.study.experiment import from_config

        read = read_config(config, overrides or [], trust)
        experiment = from_config(read, data_dir)
        tell(read.origin.notes)
        batch_size = experiment.task.train.batch_size
        rows = cost_rows(experiment.method, experiment.site.context(0), measure)
    else:
        batch_size, rows = of_model(str(model), input, classes, method, levels, overrides or [], measure)
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
    else:
        console.print(cost_table(rows, batch_size))


def of_model(
    model: str, input: str | None, classes: int | None, method: str, levels: str, overrides: list[str], measure: bool
) -> tuple[int, list[Row]]:
    """The costs of a network without an experiment; settings come from --set alone."""
    from potluck import methods
    from potluck.study.config import apply_override, read_plug
    from potluck.study.costs import costs as count_costs
    from potluck.study.costs import named_model
    from potluck.study.schema import TYPED, Table
    from potluck.study.training import read_train

    settings: Table = {section: {} for section in SETTABLE}
    for override in overrides:
        section = apply_override(settings, override).partition(".")[0]
        if section not in SETTABLE:
            raise ConfigError(f"--set {override}: without a config, {unknown('section', section, SETTABLE)}")
    factory, example = named_model(model, input, classes, settings["model"])
    train = read_train(settings["train"], TYPED, rounds=1)
    find = partial(methods.find, trusted=True)
    chosen = read_plug(find, {"name": method, **settings["method"]}, "method", TYPED)
    return train.batch_size, count_costs(factory, parse_levels(levels), example, chosen, train, measure)


def parse_levels(text: str) -> dict[str, float]:
    """Levels named by their ratios, from `1,0.5,0.25`."""
    try:
        return {part.strip(): float(part) for part in text.split(",")}
    except ValueError as error:
        raise ConfigError(f"--levels is '{text}', but it should be ratios such as 1,0.5,0.25") from error


def cost_table(rows: list[Row], batch_size: int) -> Any:
    """The rows for people, a column per level."""
    shown: dict[str, Callable[[Row], str]] = {
        "parameters": lambda row: f"{row['parameters']:,}",
        TRAINED: lambda row: f"{row['trained']:,}",
        "space": lambda row: f"{row['space']:.2f} MiB",
        "MACs per example": lambda row: quantity(row["macs"]),
        "MACs as FedHM counts": lambda row: quantity(row["paper_macs"]),
        "FLOPs as HeteroFL counts": lambda row: quantity(row["heterofl_flops"]),
        "bytes down per round": lambda row: in_bytes(row["bytes_down"]),
        "bytes up per round": lambda row: in_bytes(row["bytes_up"]),
        "peak training memory": lambda row: in_bytes(row["peak_training_memory"]),
        "seconds per step": lambda row: f"{row['seconds_per_step']:.4f}",
    }
    if all(row["trained"] == row["parameters"] for row in rows):
        del shown[TRAINED]
    if rows and "seconds_per_step" not in rows[0]:
        shown = {name: show for name, show in shown.items() if name not in ("peak training memory", "seconds per step")}
    columns = {f"{row['level']} ({row['ratio']:g})": [show(row) for show in shown.values()] for row in rows}
    return table_of(f"Cost per client; steps are of {batch_size} examples", {"": list(shown), **columns})
