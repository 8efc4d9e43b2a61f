"""Groups of runs side by side: how good they became, and at which cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from potluck.core.errors import ConfigError, RunError
from potluck.series.costs import at_budget, equal_budget, to_reach
from potluck.series.groups import Group, Spread, grouped
from potluck.series.played import SPENT, Played
from potluck.series.text import Sheet
from potluck.study.files import is_number
from potluck.study.headline import ACCURACY
from potluck.study.levels import MEAN

Part = Literal["scores", "equal", "target"]
"""Which table it is in on a terminal: how good models are, how good at an equal cost, what a target cost."""

Show = Callable[[float], str]
Value = Callable[[Played], float | None]


@dataclass(frozen=True)
class Column:
    """A figure of each run, shown as mean and deviation over the runs of a group."""

    header: str
    key: str  # in CSV and JSON
    value: Value
    show: Show
    hidden: bool = False  # whether it is only in CSV and JSON
    every: bool = False  # whether it says how many of the runs have it: not all reach a target, or were scored so early
    part: Part = "scores"


@dataclass(frozen=True)
class Shown:
    """How figures are written for people."""

    quantity: Show
    in_bytes: Show

    def spent(self, what: str, amount: float) -> str:
        """An amount of bytes, MACs or seconds."""
        if what == "seconds":
            return f"{amount:.0f} s" if amount >= 10 else f"{amount:.2g} s"
        return self.in_bytes(amount) if what == "bytes" else self.quantity(amount)


def comparison_sheet(runs: Sequence[Played], target: float | None, shown: Shown, part: Part | None = None) -> Sheet:
    """A row per group of runs that differ in their seeds alone; with all figures, or those of a part."""
    groups = grouped(runs)
    measure = common_measure(runs)
    columns = columns_for(groups, measure, target, shown)
    seen = [column for column in columns if not column.hidden and part in (None, column.part)]
    rows, numbers = [], []
    for group in groups:
        spreads = {column.key: Spread.of(map(column.value, group.runs)) for column in columns}
        cells = [cell(spreads[column.key], column, len(group.runs)) for column in seen]
        rows.append((group.name, str(len(group.runs)), *cells))
        numbers.append(numbers_of(group, columns, spreads, measure) | limits(groups, target))
    return Sheet(("", "runs", *(column.header for column in seen)), tuple(rows), tuple(numbers))


def limits(groups: Sequence[Group], target: float | None) -> dict[str, float]:
    """The equal costs at which runs are compared, and the score to be reached."""
    budgets = {f"equal {what}": budget_of(groups, what) for what in SPENT}
    return budgets if target is None else {**budgets, "target": target}


def budget_of(groups: Sequence[Group], what: str) -> float:
    """The cost at which groups are compared."""
    return equal_budget([group.runs for group in groups], what)


def require_target(target: float, measure: str) -> None:
    """Refuse a target that no score can be."""
    if not math.isfinite(target):
        raise ConfigError(f"--target is {target:g}, which no {measure} is; give a number")
    if measure.endswith(ACCURACY) and not 0 <= target <= 1:
        raise ConfigError(f"--target is {target:g}, but {measure} is a share of 1: give 0.8 for 80 %")


def common_measure(runs: Sequence[Played]) -> str:
    """The measure that all runs have."""
    measures = dict.fromkeys(run.measure for run in runs)
    if len(measures) > 1:
        found = ", ".join(f"{name} ({next(run.path for run in runs if run.measure == name)})" for name in measures)
        raise RunError(f"runs of different tasks cannot be compared: their measures are {found}")
    return next(iter(measures))


def doubts(runs: Sequence[Played]) -> list[str]:
    """What to say of runs that one mean should not hold: those that are not finished, and the same one twice."""
    found = [
        f"{run.path} has {run.rounds} of {run.settings['task.rounds']} rounds"
        for run in runs
        if is_number(run.settings.get("task.rounds")) and run.rounds < run.settings["task.rounds"]
    ]
    for group in grouped(runs):
        for seed in repeated(group.runs):
            same = [str(run.path) for run in group.runs if run.seed == seed]
            found.append(f"{' and '.join(same)} are one experiment with one seed, and all count in the mean")
    return found


def repeated(runs: Sequence[Played]) -> list[Any]:
    """The seeds that several runs have."""
    return [seed for seed, count in Counter(run.seed for run in runs).items() if count > 1]


def columns_for(groups: Sequence[Group], measure: str, target: float | None, shown: Shown) -> list[Column]:
    """The figures that are compared."""
    runs = [run for group in groups for run in group.runs]
    scored: Show = percents if measure.endswith(ACCURACY) else four_digits
    levels = list(dict.fromkeys(level for run in runs for level in run.levels))
    found = [Column(level, f"last {level}", last_of(level), scored) for level in levels]
    found.append(Column("mean", "last mean", last_of(MEAN), scored))
    if any(run.chooses for run in runs):
        found += [Column(level, f"best {level}", best_of(level), scored, hidden=True) for level in levels]
        found.append(Column("best", "best mean", best_of(MEAN), scored))
    for what in SPENT:
        budget = budget_of(groups, what)
        header = f"at {shown.spent(what, budget)}" if what == "seconds" else f"at {shown.spent(what, budget)} {what}"
        header = header.replace("B bytes", "B")
        found.append(Column(header, f"at equal {what}", within(what, budget), scored, every=True, part="equal"))
    if target is not None:
        for what in SPENT:
            header = f"{what} to {scored(target)}"
            found.append(
                Column(
                    header, f"{what} to target", reaching(what, target), spender(what, shown), every=True, part="target"
                )
            )
    found += [Column("", f"{what} in all", total_of(what), four_digits, hidden=True) for what in SPENT]
    return found


def last_of(level: str, measure: str = "") -> Value:
    return lambda run: run.last(level, measure)


def best_of(level: str, measure: str = "") -> Value:
    return lambda run: run.best_score(level, measure)


def within(what: str, budget: float) -> Value:
    return lambda run: at_budget(run, what, budget)


def reaching(what: str, target: float) -> Value:
    return lambda run: to_reach(run, what, target)


def total_of(what: str) -> Value:
    return lambda run: run.spent(what)[-1]


def spender(what: str, shown: Shown) -> Show:
    return lambda amount: shown.spent(what, amount)


def cell(spread: Spread | None, column: Column, runs: int) -> str:
    """Mean and deviation for people."""
    if spread is None:
        return "-"
    text = column.show(spread.mean)
    if spread.deviation is not None:
        text = with_deviation(text, column.show(spread.deviation))
    return f"{text} ({spread.count} of {runs})" if column.every and spread.count < runs else text


def with_deviation(mean: str, deviation: str) -> str:
    """A mean and a deviation; a unit that both have stands once.

    >>> with_deviation("91.2 %", "0.3 %"), with_deviation("1.2 GB", "30 MB")
    ('91.2 ± 0.3 %', '1.2 GB ± 30 MB')
    """
    number, _, unit = mean.partition(" ")
    other, _, its_unit = deviation.partition(" ")
    return f"{number} ± {other} {unit}".rstrip() if unit == its_unit else f"{mean} ± {deviation}"


def numbers_of(
    group: Group, columns: Sequence[Column], spreads: dict[str, Spread | None], measure: str
) -> dict[str, Any]:
    """A group's figures with full precision."""
    found: dict[str, Any] = {"group": group.name, **group.differs, "measure": measure, "runs": len(group.runs)}
    for column in columns:
        key, spread = column.key, spreads[column.key]
        found[key] = None if spread is None else spread.mean
        if column.every:
            found[f"{key} runs"] = 0 if spread is None else spread.count
        if spread is not None and spread.deviation is not None:
            found[f"{key} deviation"] = spread.deviation
    return found


def percents(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f} %"


def four_digits(value: float) -> str:
    """A number of four digits."""
    return f"{value:.4g}"
