"""The demo: what a fleet of unequal devices gains when every device brings what it can."""

from __future__ import annotations

import shutil
import sys
from itertools import count
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD

from potluck.cli.show import console, in_bytes, percent, progress_bar, quantity, say, table_of
from potluck.cli.summary import Summary, summarise
from potluck.core.engine import Engine
from potluck.engines import make_engine
from potluck.study.config import Config, parse_config
from potluck.study.experiment import from_config
from potluck.study.run import execute
from potluck.study.schema import Origin, Table

LEVELS = {"server": 1.0, "laptop": 0.5, "phone": 0.25, "watch": 0.125}
LARGEST, SMALLEST = "server", "watch"

SMALL, STRONG = "FedAvg, smallest", "FedAvg, strong"
EVERYBODY, LOW_RANK, COMPOSED = "HeteroFL", "FedHM", "FLANC"
RUNS: dict[str, Table] = {
    SMALL: {"name": "fedavg", "width": LEVELS[SMALLEST]},
    STRONG: {"name": "fedavg", "width": LEVELS[LARGEST]},
    EVERYBODY: {"name": "heterofl"},
    LOW_RANK: {"name": "fedhm"},
    COMPOSED: {"name": "flanc"},
}
WIDEST = max(map(len, RUNS))
NOTES = (
    "A dash means that a device class gets no model: the network is too large for it.",
    "FedHM's levels are ranks, not widths: a small one takes more MACs and bytes than a narrow network.",
)


def demo_config(method: Table, seed: int) -> Config:
    """40 devices of four sizes with label-skewed digits; only the method differs between the demo's runs."""
    table = {
        "name": f"digits-{method['name']}",
        "seed": seed,
        "task": {
            "model": {"name": "heterofl-cnn", "hidden": [32, 64, 128, 256]},
            "rounds": 15,
            "evaluate_every": 5,
        },
        "data": {"source": "digits", "partition": {"name": "dirichlet", "alpha": 0.3}},
        "fleet": {"clients": 40, "levels": LEVELS, "cohort": 0.25},
        "method": method,
        "train": {"lr": 0.05, "epochs": 5},
    }
    return parse_config(table, Origin())


def run_demo(out: Path, seed: int) -> None:
    """Run the federations, show them side by side, and say what the figures mean."""
    folder = unused(out)
    console.print(
        "40 devices of four sizes hold different digits; none shows its data to anybody.\n"
        "A server's network is full width, a laptop's 1/2, a phone's 1/4, a watch's 1/8.\n\n"
        f"{SMALL}: one network that even a watch can run, for all\n"
        f"{STRONG}: the full network, trained by servers alone\n"
        f"{EVERYBODY}: every device trains the part of the full network that fits\n"
        f"{LOW_RANK}: every device trains a low-rank factorisation that it can afford\n"
        f"{COMPOSED}: networks of all widths are composed of one basis\n",
        highlight=False,
    )
    engine = make_engine("local")
    try:
        runs = {title: play(title, demo_config(method, seed), folder, engine) for title, method in RUNS.items()}
    finally:
        engine.close()
    console.print()
    console.print(by_method(runs))
    for sentence in (*NOTES, verdict(runs)):
        console.print(sentence, highlight=False)
    say(f"\nSaved in {folder}. Next, try:")
    heterofl = folder / directory_name(EVERYBODY)
    for command in (
        f"export {heterofl} --level watch --out watch.safetensors",
        "run experiments/digits-heterofl.toml --set data.partition.alpha=0.1",
        "costs experiments/digits-heterofl.toml",
        "--help",
    ):
        say(f"  {command_name()} {command}")


def command_name() -> str:
    """What to type to get this program again: its name, or its path where the name alone would not be found."""
    return "potluck" if shutil.which("potluck") else sys.argv[0]


def play(title: str, config: Config, folder: Path, engine: Engine) -> Summary:
    """One of the demo's runs, with a progress bar."""
    directory = folder / directory_name(title)
    with progress_bar(f"{title:<{WIDEST}}") as bar:
        execute(from_config(config), engine, config.resolved(), directory, watcher=bar)
    return summarise(directory)


def by_method(runs: dict[str, Summary]) -> Any:
    """A row per method: what every device class gets, then what it cost in all."""
    columns: dict[str, list[str]] = {"": list(runs)}
    for level in LEVELS:
        columns[level] = [percent(run.score.get(level)).removesuffix(" %") for run in runs.values()]
    columns["MACs"] = [quantity(run.macs) for run in runs.values()]
    columns["bytes"] = [in_bytes(run.bytes_down + run.bytes_up) for run in runs.values()]
    columns["seconds"] = [f"{run.seconds:.1f}" for run in runs.values()]
    table = table_of("Accuracy in % by device class, and what it cost in all", columns)
    table.box, table.collapse_padding = SIMPLE_HEAD, True  # the usual lines would take more than 80 columns
    return table


def verdict(runs: dict[str, Summary]) -> str:
    """What the figures say in a sentence, whoever wins."""
    largest, smallest = best_of_all(runs, LARGEST), best_of_all(runs, SMALLEST)
    large, alone = (percent(runs[title].score[LARGEST]) for title in (largest, STRONG))
    small, for_all = (percent(runs[title].score[SMALLEST]) for title in (smallest, SMALL))
    return (
        f"In short: where every device takes part, the best network for a {LARGEST} is {largest}'s with {large} "
        f"(strong devices alone: {alone}), and the best for a {SMALLEST} is {smallest}'s with {small} "
        f"(one small network for all: {for_all})."
    )


def best_of_all(runs: dict[str, Summary], level: str) -> str:
    """Of the methods in which every device takes part, the one whose model for a level is the best."""
    return max((EVERYBODY, LOW_RANK, COMPOSED), key=lambda title: runs[title].score[level] or 0)


def directory_name(title: str) -> str:
    """A run's title as the name of a directory."""
    return title.lower().replace(", ", "-").replace(" ", "-")


def unused(out: Path) -> Path:
    """`out`, or the first of out-2, out-3 … that does not exist yet."""
    candidates = (out if number == 1 else out.with_name(f"{out.name}-{number}") for number in count(1))
    return next(path for path in candidates if not path.exists())
