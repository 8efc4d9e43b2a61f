"""The commands, each a thin layer over the library.

PyTorch takes seconds to import, so nothing in this room imports it, or what needs it, before a command does its work:
`--help` and `--version` answer at once.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from potluck import __version__
from potluck.cli.compare import compare
from potluck.cli.costs import costs
from potluck.cli.data import data_app, partition
from potluck.cli.export import export
from potluck.cli.group import Commands
from potluck.cli.inspect import inspect
from potluck.cli.options import ConfigPath, DataDir, Overrides, Trust
from potluck.cli.plan import plan
from potluck.cli.presets import presets, reproduce
from potluck.cli.ranks import ranks
from potluck.cli.show import console, progress_bar, say, table_of, tell
from potluck.cli.sweep import sweep
from potluck.core.errors import ConfigError

app = typer.Typer(
    name="potluck",
    cls=Commands,
    help=(
        "Federated learning in which every device brings what it can.\n\n"
        "Phones, laptops and servers train networks of different sizes on their own data; Potluck turns their "
        "updates into one global network and one right-sized network per device class. All of this is simulated on "
        "one machine.\n\n"
        "Start with [bold]potluck demo[/bold]. Then copy experiments/digits-heterofl.toml, change what you like, "
        "and [bold]potluck run[/bold] it. A run that was interrupted continues with --resume and gives the same "
        "result as if it had not been."
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)


def show_version(asked: bool) -> None:
    """Print the version and end, if that is all that was asked for."""
    if asked:
        typer.echo(f"potluck {__version__}")
        raise typer.Exit


@app.callback()
def begin(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Options of `potluck` itself."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="where to save the runs")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="another seed, another federation")] = 0,
) -> None:
    """Five federations of 40 unequal devices on handwritten digits, side by side. Needs no download.

    FedAvg with one small network that every device can run; FedAvg with the large network on strong devices alone;
    and HeteroFL, FedHM and FLANC, in which every device trains what it can. 15 rounds each, under 3 minutes on 2 cores.
    """
    from potluck.cli.demo import run_demo

    run_demo(out, seed)


@app.command()
def run(
    config: ConfigPath,
    overrides: Overrides = None,
    data_dir: DataDir = None,
    out: Annotated[Path | None, typer.Option(help="the run's directory  [default: runs/NAME]")] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="continue an earlier run of this config, or extend it with a larger task.rounds"),
    ] = False,
    profile: Annotated[bool, typer.Option("--profile", help="show in the end where the time went")] = False,
    trust: Trust = False,
) -> None:
    """Run an experiment and record it."""
    from potluck.cli.profile import profile_table
    from potluck.cli.summary import comparison, summarise
    from potluck.engines import make_engine
    from potluck.study.config import read_config
    from potluck.study.experiment import from_config
    from potluck.study.notes import notes_on, notes_on_experiment
    from potluck.study.resume import nothing_to_resume
    from potluck.study.run import execute

    read = read_config(config, overrides or [], trust)
    directory = out or Path("runs") / read.name
    experiment = from_config(read, data_dir)
    tell([*read.origin.notes, *notes_on(read), *notes_on_experiment(experiment)])
    if resume and (sentence := nothing_to_resume(directory)):
        say(sentence)
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


app.command()(compare)
app.command()(sweep)
app.command()(presets)
app.command()(reproduce)


@app.command(name="methods")
def list_methods() -> None:
    """The methods Potluck knows, with their papers."""
    from potluck import methods

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
    from potluck import methods
    from potluck.contract import CHECKS, check_method

    method = methods.find(name, trusted=True)
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


app.command()(export)
app.command()(partition)
app.add_typer(data_app, name="data")
