"""The demo: what a fleet of unequal devices gains when every device brings what it can."""

from __future__ import annotations

import shutil
import sys
from itertools import count
from pathlib import Path

from potluck.cli.show import console, percent, progress_bar, say
from potluck.cli.summary import Summary, comparison, summarise
from potluck.core.engine import Engine
from potluck.engines import make_engine
from potluck.study.config import Config, parse_config
from potluck.study.experiment import from_config
from potluck.study.run import execute
from potluck.study.schema import Origin, Table

LEVELS = {"server": 1.0, "laptop": 0.5, "phone": 0.25, "watch": 0.125}
LARGEST, SMALLEST = "server", "watch"

SMALL, STRONG, EVERYBODY = "FedAvg, smallest model", "FedAvg, strong devices only", "HeteroFL, everybody"
LOW_RANK, COMPOSED = "FedHM, everybody", "FLANC, everybody"
RUNS: dict[str, Table] = {
    SMALL: {"name": "fedavg", "width": LEVELS[SMALLEST]},
    STRONG: {"name": "fedavg", "width": LEVELS[LARGEST]},
    EVERYBODY: {"name": "heterofl"},
    LOW_RANK: {"name": "fedhm"},
    COMPOSED: {"name": "flanc"},
}


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
        "A server's network is full width, a laptop's 1/2, a phone's 1/4, a watch's 1/8 (of FedHM: their rank).\n"
    )
    engine = make_engine("local")
    try:
        runs = {title: play(title, demo_config(method, seed), folder, engine) for title, method in RUNS.items()}
    finally:
        engine.close()
    console.print()
    console.print(comparison("What each device class ends up with", runs))
    for sentence in verdict(runs):
        console.print(sentence)
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
    with progress_bar(f"{title:<28}") as bar:
        execute(from_config(config), engine, config.resolved(), directory, watcher=bar)
    return summarise(directory)


def verdict(runs: dict[str, Summary]) -> list[str]:
    """What the figures say, whoever wins."""
    strong, small = runs[STRONG].accuracy[LARGEST], runs[SMALL].accuracy[SMALLEST]
    sentences: list[str] = []
    for title in (EVERYBODY, LOW_RANK, COMPOSED):
        name, found = title.partition(",")[0], runs[title].accuracy
        best, level = max((accuracy or 0, level) for level, accuracy in found.items())
        sentences += [
            compare_words(name, "the largest model", found[LARGEST], "only strong devices taking part", strong),
            compare_words(name, f"its best model ({level})", best, "one small model for all", small),
            compare_words(name, "on a watch, its model", found[SMALLEST], "the small model for all", small),
        ]
    return [
        *sentences,
        "FedHM's levels are ranks, not widths: a small one has more parameters and MACs than a narrow network has.",
        "A dash means that a device class gets no model: the network is too large for it.",
    ]


def compare_words(name: str, what: str, ours: float | None, than: str, theirs: float | None) -> str:
    """One comparison of a method with a baseline, as a sentence."""
    gap = 100 * ((ours or 0) - (theirs or 0))
    word = "beats" if gap > 0 else "loses to" if gap < 0 else "equals"
    return f"{name}: {what} at {percent(ours)} {word} {than} at {percent(theirs)} ({gap:+.1f} points)."


def directory_name(title: str) -> str:
    """A run's title as the name of a directory."""
    return title.lower().replace(", ", "-").replace(" ", "-")


def unused(out: Path) -> Path:
    """`out`, or the first of out-2, out-3 … that does not exist yet."""
    candidates = (out if number == 1 else out.with_name(f"{out.name}-{number}") for number in count(1))
    return next(path for path in candidates if not path.exists())
