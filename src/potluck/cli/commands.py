"""The commands, each a thin layer over the library."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from potluck import methods
from potluck.cli.costs import costs
from potluck.cli.data import data_app, partition
from potluck.cli.demo import run_demo
from potluck.cli.inspect import inspect
from potluck.cli.options import ConfigPath, DataDir, Overrides
from potluck.cli.plan import plan
from potluck.cli.profile import profile_table
from potluck.cli.ranks import ranks
from potluck.cli.show import console, progress_bar, say, table_of
from potluck.cli.summary import comparison, summarise
from potluck.contract import CHECKS, check_method
from potluck.core.checkpoint import read, save
from potluck.core.errors import ConfigError, RunError
from potluck.core.tensors import state_of
from potluck.core.types import Level
from potluck.engines import make_engine
from potluck.study.config import parse_config, read_config
from potluck.study.experiment import Experiment, from_config
from potluck.study.record import RunDirectory, read_toml
from potluck.study.run import execute, model_so_far
from potluck.study.schema import Origin

app = typer.Typer(
    name="potluck",
    help=(
        "Federated learning in which every device brings what it can.\n\n"
        "Phones, laptops and servers train networks of different sizes on their own data; Potluck turns their "
        "updates into one global network and one right-sized network per device class.\n\n"
        "Start with [bold]potluck demo[/bold]. Then copy experiments/digits-heterofl.toml, change what you like, "
        "and [bold]potluck run[/bold] it. A run that was interrupted continues with --resume and gives the same "
        "result as if it had not been."
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="where to save the runs")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="another seed, another federation")] = 0,
) -> None:
    """Five federations of 40 unequal devices on handwritten digits, side by side. Needs no download."""
    run_demo(out, seed)


@app.command()
def run(
    config: ConfigPath,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    out: Annotated[Path | None, typer.Option(help="the run's directory  [default: runs/NAME]")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue where an earlier run of this config stopped")
    ] = False,
    profile: Annotated[bool, typer.Option("--profile", help="show in the end where the time went")] = False,
) -> None:
    """Run an experiment and record it."""
    read = read_config(config, overrides or [])
    directory = out or Path("runs") / read.name
    experiment = from_config(read, data_dir)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # an operator's stop is as clean as Ctrl-C
    engine = make_engine(read.engine.name, read.engine.workers)
    try:
        with progress_bar(read.name) as bar:
            result = execute(experiment, engine, read.resolved(), directory, resume, bar)
    except KeyboardInterrupt:
        say(f"Stopped. What was finished is in {directory}; the same command with --resume continues.")
        raise
    finally:
        engine.close()
    console.print(comparison(f"{read.name} ({read.method_name})", {read.name: summarise(directory)}))
    if profile:
        console.print(profile_table(result.profile))
    models = "a model per level in models/" if result.models else "what stays on each client in personal/"
    say(f"Saved in {directory}: metrics.jsonl, final.safetensors and {models}.")


app.command()(costs)
app.command()(plan)
app.command()(ranks)
app.command()(inspect)


@app.command()
def compare(runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="directories of runs")]) -> None:
    """Runs side by side: accuracy per level, and what it cost."""
    console.print(comparison("Comparison", {str(path): summarise(path) for path in runs}))


@app.command(name="methods")
def list_methods() -> None:
    """The methods Potluck knows, with their papers."""
    found = {name: methods.find(name) for name in methods.names()}
    columns = {
        "method": list(found),
        "in a sentence": [(cls.__doc__ or "").splitlines()[0] for cls in found.values()],
        "paper": [cls.paper for cls in found.values()],
    }
    console.print(table_of("Methods", columns, justify="left"))


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="METHOD", help="a method's name, or package.module:Class of your own")],
) -> None:
    """Try a method against everything Potluck expects of one."""
    method = methods.find(name)
    try:
        instance = method()
    except TypeError as error:
        raise ConfigError(f"{name} cannot be checked without settings ({error}); give them defaults") from error
    failed = 0
    for title, problem in check_method(instance):
        failed += problem is not None
        console.print(f"[red]fails[/red]  {title}: {escape(problem)}" if problem else f"[green]holds[/green]  {title}")
    if failed:
        raise ConfigError(f"{name} breaks {failed} of {len(CHECKS)} expectations")
    console.print(f"{name} meets all {len(CHECKS)} expectations.")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the directory of a run")],
    out: Annotated[Path, typer.Option(help="the file to write, e.g. watch.safetensors")],
    level: Annotated[str | None, typer.Option(help="the device class")] = None,
    ratio: Annotated[float | None, typer.Option(help="or any size, as a share of the full network")] = None,
    client: Annotated[int | None, typer.Option(help="or a client, if each has a model of its own")] = None,
    data_dir: DataDir = None,
) -> None:
    """Write a level's model, one of any size, or a client's own, as a safetensors file of plain weights.

    An unfinished run gives its latest.
    """
    record = RunDirectory(run)
    levels = read_toml(record.config)["fleet"]["levels"]
    if [level, ratio, client].count(None) != 2:
        raise RunError(f"export needs a --level ({', '.join(levels)}), a --ratio, such as 0.4, or a --client")
    if level is not None and level not in levels:
        raise RunError(f"{run} has no level '{level}'; it has {', '.join(levels)}")
    if level is not None and record.model(level).exists():
        weights, about = read(record.model(level))
    else:
        config = parse_config(read_toml(record.config), Origin(record.config))
        experiment = from_config(config, data_dir)
        if client is None:
            of: Level | int = Level(level, levels[level]) if level else Level(f"{ratio:g}", float(ratio or 0))
            require_exportable(of, experiment)
        else:
            of = client
        found = model_so_far(experiment, make_engine("serial"), record, of)
        owner = {} if client is None else {"client": client}
        about = {"level": found.level.name, **owner, "rounds_done": record.progress().rounds_done}
        weights = state_of(found.net)
    save(out, weights, about)
    say(f"Wrote {out}: level {about['level']} after {about['rounds_done']} rounds.")


def require_exportable(level: Level | int, experiment: Experiment) -> None:
    """Refuse a size that no device of the run could have."""
    assert isinstance(level, Level)
    largest = experiment.task.largest
    if not 0 < level.ratio <= largest.ratio:
        raise RunError(f"--ratio is {level.ratio:g}, but it should be above 0 and at most {largest.ratio:g}")
    if not experiment.method.admits(level, experiment.site.context(0)):
        admitted = ", ".join(known.name for known in experiment.admitted())
        raise RunError(f"there is no model for level '{level.name}', which does not take part; try {admitted}")


app.command()(partition)
app.add_typer(data_app, name="data")
