"""The commands, each a thin layer over the library."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from potluck import methods
from potluck.cli.demo import run_demo
from potluck.cli.show import console, in_bytes, progress_bar, quantity, table_of
from potluck.cli.summary import comparison, summarise
from potluck.contract import CHECKS, check_method
from potluck.core.checkpoint import read, save
from potluck.core.errors import ConfigError, RunError
from potluck.core.tensors import state_of
from potluck.engines import make_engine
from potluck.parts.cost import peak_training_memory
from potluck.study.config import parse_config, read_config
from potluck.study.experiment import from_config
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

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="an experiment as a TOML file")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="change a setting, e.g. train.lr=0.1; repeatable")
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="the directory of a run")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="where to save the runs")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="another seed, another federation")] = 0,
) -> None:
    """Three federations of 40 unequal devices on handwritten digits, side by side. Needs no download."""
    run_demo(out, seed)


@app.command()
def run(
    config: ConfigPath,
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="the run's directory  [default: runs/NAME]")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="continue where an earlier run of this config stopped")
    ] = False,
) -> None:
    """Run an experiment and record it."""
    read = read_config(config, overrides or [])
    directory = out or Path("runs") / read.name
    experiment = from_config(read)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # an operator's stop is as clean as Ctrl-C
    engine = make_engine(read.engine.name, read.engine.workers)
    try:
        with progress_bar(read.name) as bar:
            execute(experiment, engine, read.resolved(), directory, resume, bar)
    except KeyboardInterrupt:
        console.print(f"Stopped. What was finished is in {directory}; the same command with --resume continues.")
        raise
    finally:
        engine.close()
    console.print(comparison(f"{read.name} ({read.method_name})", {read.name: summarise(directory)}))
    console.print(f"Saved in {directory}: metrics.jsonl, final.safetensors and a model per level in models/.")


@app.command()
def costs(config: ConfigPath, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """What each level costs a device: parameters, MACs, bytes per round, peak training memory."""
    experiment = from_config(read_config(config, overrides or []))
    ctx = experiment.site.context(0)
    state = experiment.method.init(ctx)
    rows: list[dict[str, Any]] = []
    for level, cost in zip(experiment.admitted(), experiment.costs(), strict=True):
        peak = peak_training_memory(experiment.method, state, level, ctx)
        rows.append({**vars(cost), "peak_training_memory": peak})
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    columns = {
        "level": [row["level"] for row in rows],
        "ratio": [f"{row['ratio']:g}" for row in rows],
        "parameters": [f"{row['parameters']:,}" for row in rows],
        "MACs per example": [quantity(row["macs"]) for row in rows],
        "bytes down": [in_bytes(row["bytes_down"]) for row in rows],
        "bytes up": [in_bytes(row["bytes_up"]) for row in rows],
        "peak training memory": [in_bytes(row["peak_training_memory"]) for row in rows],
    }
    console.print(table_of(f"Per client and round, batches of {experiment.task.train.batch_size}", columns))


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
    console.print(table_of("Methods", columns))


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="METHOD", help="a method's name, or package.module:Class of your own")],
) -> None:
    """Try a method against everything Potluck expects of one."""
    method = methods.find(name)
    failed = 0
    for title, problem in check_method(method()):
        failed += problem is not None
        console.print(f"[red]fails[/red]  {title}: {problem}" if problem else f"[green]holds[/green]  {title}")
    if failed:
        raise ConfigError(f"{name} breaks {failed} of {len(CHECKS)} expectations")
    console.print(f"{name} meets all {len(CHECKS)} expectations.")


@app.command()
def export(
    run: RunPath,
    level: Annotated[str, typer.Option(help="the device class")],
    out: Annotated[Path, typer.Option(help="the file to write, e.g. watch.safetensors")],
) -> None:
    """Write one level's model as a safetensors file of plain weights; an unfinished run gives its latest."""
    record = RunDirectory(run)
    if record.model(level).exists():
        weights, about = read(record.model(level))
    else:
        weights, about = export_unfinished(record, level)
    save(out, weights, about)
    console.print(f"Wrote {out}: level {level} after {about['rounds_done']} rounds.")


def export_unfinished(record: RunDirectory, level: str) -> tuple[Any, dict[str, Any]]:
    """A level's weights from the last finished round of a run."""
    config = parse_config(read_toml(record.config), Origin(record.config))
    experiment = from_config(config)
    admitted = {known.name: known for known in experiment.admitted()}
    if level not in admitted:
        raise RunError(f"{record.path} has no level '{level}'; it has {', '.join(admitted)}")
    engine = make_engine("serial")
    net = model_so_far(experiment, engine, record, admitted[level])
    return state_of(net), {"level": level, "rounds_done": record.progress().rounds_done}
