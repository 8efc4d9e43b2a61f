"""A finished or unfinished run in figures, read from its directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from potluck.cli.show import in_bytes, percent, quantity, table_of
from potluck.core.errors import RunError
from potluck.study.record import RunDirectory, read_toml


@dataclass(frozen=True)
class Summary:
    """What a comparison shows of one run."""

    name: str
    method: str
    rounds: int
    accuracy: dict[str, float | None]  # by level, of the last evaluated round
    parameters: dict[str, int]
    macs: int
    bytes_down: int
    bytes_up: int
    failures: int
    seconds: float


def summarise(path: Path) -> Summary:
    """Add up a run's records."""
    run = RunDirectory(path)
    records, config = run.records(), read_toml(run.config)
    if not records:
        raise RunError(f"{path} has no finished round yet; there is nothing to compare")
    evaluated = [r for r in records if any(found["accuracy"] is not None for found in r["levels"].values())]
    last = (evaluated or records)[-1]
    return Summary(
        name=str(config["name"]),
        method=str(config["method"]["name"]),
        rounds=len(records),
        accuracy={level: found["accuracy"] for level, found in last["levels"].items()},
        parameters={cost["level"]: cost["parameters"] for cost in run.costs()},
        macs=sum(r["macs"] for r in records),
        bytes_down=sum(r["bytes_down"] for r in records),
        bytes_up=sum(r["bytes_up"] for r in records),
        failures=sum(r["failures"] for r in records),
        seconds=sum(r["seconds"] for r in records),
    )


def comparison(title: str, runs: dict[str, Summary]) -> Table:
    """Runs side by side: accuracy for every device class, then what it cost."""
    levels = list(dict.fromkeys(level for run in runs.values() for level in run.accuracy))
    several = list(runs.values())
    return table_of(
        title,
        {
            "run": list(runs),
            **{f"{level}\naccuracy": [percent(run.accuracy.get(level)) for run in several] for level in levels},
            "parameters": [spread(run.parameters) for run in several],
            "training\nMACs": [quantity(run.macs) for run in several],
            "bytes\ndown": [in_bytes(run.bytes_down) for run in several],
            "bytes\nup": [in_bytes(run.bytes_up) for run in several],
            "failures": [run.failures for run in several],
            "rounds": [run.rounds for run in several],
            "seconds": [f"{run.seconds:.1f}" for run in several],
        },
    )


def spread(parameters: dict[str, int]) -> str:
    """The sizes of a run's models, from the smallest to the largest."""
    low, high = min(parameters.values()), max(parameters.values())
    return quantity(low) if low == high else f"{quantity(low)} to {quantity(high)}"
