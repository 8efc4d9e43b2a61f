"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="an experiment as a TOML file")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a setting, e.g. train.lr=0.1; may be repeated"),
]
DataDir = Annotated[
    Path | None,
    typer.Option(envvar="POTLUCK_DATA", help="the folder that holds your data sets"),
]
Jobs = Annotated[int, typer.Option(help="how many runs at a time; the cores are divided among them")]
Format = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="csv, json, latex or markdown instead of a table")
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]
Trust = Annotated[
    bool, typer.Option("--trust", help="let it run code that it names, such as my.module:net; you know who wrote it")
]
