"""A finished or unfinished run in figures, read from its directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.table import Table

from potluck.cli.show import in_bytes, quantity, table_of
from potluck.core.errors import RunError
from potluck.study.comparing import unlike
from potluck.study.files import is_number
from potluck.study.headline import figure, has_scores, headline_of, shown_scores
from potluck.study.record import RunDirectory
from potluck.study.schema import Table as Settings
from potluck.study.seal import OLD
from potluck.study.watchers import Record

SUMMED = ("macs", "bytes_down", "bytes_up", "evaluation_bytes_down", "evaluation_bytes_up", "failures", "seconds")


@dataclass(frozen=True)
class Summary:
    """What a comparison shows of one run."""

    name: str
    method: str
    rounds: int
    measure: str  # the most telling one of the task: accuracy, if it has one
    score: dict[str, float | None]  # that measure by level, of the last evaluated round
    parameters: dict[str, int]
    trained: dict[str, int]
    example_macs: dict[str, int]
    macs: int
    bytes_down: int
    bytes_up: int
    evaluation_bytes: int  # both ways, for batch-norm statistics and for the scores of clients' own models
    failures: int
    seconds: float
    settings: Settings = field(default_factory=dict)  # its config, the rounds done, and the last one evaluated


def summarise(path: Path) -> Summary:
    """Add up a run's records."""
    run = RunDirectory(path)
    records = run.records()
    if not records:
        raise RunError(f"{path} has no finished round yet; there is nothing to compare")
    for record in records:
        require_figures(record, run.metrics)
    config, costs = run.settings(), run.costs()
    evaluated = [r for r in records if any(value is not None for value in shown_scores(r).values())]
    last = (evaluated or records)[-1]
    return Summary(
        name=str(config["name"]),
        method=str(config["method"]["name"]),
        rounds=len(records),
        measure=headline_of(last),
        score=shown_scores(last),
        parameters={cost.level: cost.parameters for cost in costs},
        trained={cost.level: cost.trained for cost in costs},
        example_macs={cost.level: cost.macs for cost in costs},
        macs=sum(r["macs"] for r in records),
        bytes_down=sum(r["bytes_down"] for r in records),
        bytes_up=sum(r["bytes_up"] for r in records),
        evaluation_bytes=sum(r["evaluation_bytes_down"] + r["evaluation_bytes_up"] for r in records),
        failures=sum(r["failures"] for r in records),
        seconds=sum(r["seconds"] for r in records),
        settings={**config, "rounds": len(records), "evaluated": last["round"]},
    )


def require_figures(record: Record, path: Path) -> None:
    """Refuse a record that lacks what is added up."""
    missing = [key for key in SUMMED if not is_number(record.get(key))]
    if not has_scores(record.get("levels")):
        missing.append("levels")
    if missing:
        raise RunError(f"{path} has no {missing[0]!r} that makes sense in round {record['round']}: {OLD}")


def warning(runs: dict[str, Settings]) -> list[str]:
    """What to say of runs, or groups of runs, that cannot be compared; nothing if they can."""
    found = unlike(runs)
    said = "These runs differ in more than method, network and training, so that their figures may not compare:"
    return [said, *(f"  {line}" for line in found)] if found else []


def score_in(level: str, measure: str, run: Summary) -> str:
    """A run's measure of a level, if it is the one that the run has."""
    return figure(measure, run.score.get(level) if run.measure == measure else None)


def comparison(title: str, runs: dict[str, Summary]) -> Table:
    """Runs side by side, a column each: what every device class gets, then what it cost."""
    levels = list(dict.fromkeys(level for run in runs.values() for level in run.score))
    measures = dict.fromkeys(run.measure for run in runs.values())
    rows: dict[str, Callable[[Summary], str]] = {}
    for level in levels:
        for name in measures:
            rows[f"{level}: {name}"] = partial(score_in, level, name)
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
        "evaluation bytes": lambda run: in_bytes(run.evaluation_bytes),
        "rounds": lambda run: str(run.rounds),
        "failures": lambda run: str(run.failures),
        "seconds": lambda run: f"{run.seconds:.1f}",
    }
    return table_of(
        title, {"": list(rows), **{name: [show(run) for show in rows.values()] for name, run in runs.items()}}
    )
