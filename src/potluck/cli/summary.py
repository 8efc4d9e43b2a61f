"""A finished or unfinished run in figures, read from its directory."""

from __future__ import annotations

from collections.abc import Callable
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
    trained: dict[str, int]
    example_macs: dict[str, int]
    macs: int
    bytes_down: int
    bytes_up: int
    calibration_bytes: int  # both ways, for the batch-norm statistics of evaluated models
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
        trained={cost["level"]: cost.get("trained", cost["parameters"]) for cost in run.costs()},  # older runs lack it
        example_macs={cost["level"]: cost["macs"] for cost in run.costs()},
        macs=sum(r["macs"] for r in records),
        bytes_down=sum(r["bytes_down"] for r in records),
        bytes_up=sum(r["bytes_up"] for r in records),
        calibration_bytes=sum(r["calibration_bytes_down"] + r["calibration_bytes_up"] for r in records),
        failures=sum(r["failures"] for r in records),
        seconds=sum(r["seconds"] for r in records),
    )


def comparison(title: str, runs: dict[str, Summary]) -> Table:
    """Runs side by side, a column each: what every device class gets, then what it cost."""
    levels = list(dict.fromkeys(level for run in runs.values() for level in run.accuracy))
    rows: dict[str, Callable[[Summary], str]] = {}
    for level in levels:
        rows[f"{level}: accuracy"] = lambda run, level=level: percent(run.accuracy.get(level))  # type: ignore[misc]
    for level in levels:
        rows[f"{level}: parameters"] = lambda run, level=level: quantity(run.parameters.get(level))  # type: ignore[misc]
    for level in levels:
        if any(run.trained.get(level) != run.parameters.get(level) for run in runs.values()):
            rows[f"{level}: trained"] = lambda run, level=level: quantity(run.trained.get(level))  # type: ignore[misc]
    for level in levels:
        rows[f"{level}: MACs/example"] = lambda run, level=level: quantity(run.example_macs.get(level))  # type: ignore[misc]
    rows |= {
        "MACs in all": lambda run: quantity(run.macs),
        "bytes sent": lambda run: in_bytes(run.bytes_down),
        "bytes received": lambda run: in_bytes(run.bytes_up),
        "calibration bytes": lambda run: in_bytes(run.calibration_bytes),
        "rounds": lambda run: str(run.rounds),
        "failures": lambda run: str(run.failures),
        "seconds": lambda run: f"{run.seconds:.1f}",
    }
    return table_of(
        title, {"": list(rows), **{name: [show(run) for show in rows.values()] for name, run in runs.items()}}
    )
